"""Text of boosted trees from files: checked number by number, since libraries follow them out of bounds and in circles."""

import json
from typing import Any

import numpy as np


def _demand(condition: bool | np.bool_, otherwise: str) -> None:  # noqa: FBT001 - reads like an assertion
    if not condition:
        raise ValueError(otherwise)


def _check_splits(left: np.ndarray, right: np.ndarray, feature: np.ndarray, n_features: int) -> None:
    """Refuse nodes that do not lead down, as a node is always numbered after its parent."""
    _demand(len(left) == len(right) == len(feature), "a tree has parts of different sizes")
    own = np.arange(len(left))
    for children in (left, right):
        inner = children >= 0
        _demand((children[inner] > own[inner]).all() and (children < len(left)).all(), "a tree does not lead down")
    _demand(((feature >= 0) & (feature < n_features)).all(), "a tree splits by a column that is not there")


def checked_lightgbm(text: str, n_features: int, n_scores: int) -> str:
    """Return a text of LightGBM, written anew: the library ends the whole process where a number is not as it expects."""
    head, *trees = text.split("\nTree=")
    about = dict(line.split("=", 1) for line in head.splitlines() if "=" in line)
    _demand(int(about["max_feature_idx"]) + 1 == n_features, "its trees are of another number of columns")
    _demand(int(about["num_tree_per_iteration"]) == int(about["num_class"]) == n_scores, "its trees are of other classes")
    _demand(len(trees) > 0 and len(trees) % n_scores == 0, "trees are missing")
    lines = [
        "tree",
        "version=v4",
        f"num_class={n_scores}",
        f"num_tree_per_iteration={n_scores}",
        "label_index=0",
        f"max_feature_idx={n_features - 1}",
        "feature_names=" + " ".join(f"Column_{j}" for j in range(n_features)),
        "feature_infos=" + " ".join(["none"] * n_features),
    ]
    for number, tree in enumerate(trees):
        given = dict(line.split("=", 1) for line in tree.split("\n\n", 1)[0].splitlines()[1:])
        own = _lightgbm_tree(given, n_features)
        lines += ["", f"Tree={number}", *(f"{name}={' '.join(map(repr, values.tolist()))}" for name, values in own.items())]
    return "\n".join([*lines, "", "", "end of trees", ""])


def _lightgbm_tree(given: dict[str, str], n_features: int) -> dict[str, np.ndarray]:
    """Return the numbers of one tree that prediction needs, all checked."""

    def numbers(name: str, size: int, kind: type = float, *, infinite: bool = False) -> np.ndarray:
        found = np.array([kind(part) for part in given[name].split()])
        _demand(len(found) == size, "a tree has parts of different sizes")
        _demand((~np.isnan(found) if infinite else np.isfinite(found)).all(), "a tree has numbers that are none")
        return found

    (leaves,), (categorical,) = (numbers(name, 1, int) for name in ("num_leaves", "num_cat"))
    _demand(leaves >= 1 and categorical >= 0, "leaves are missing")
    tree = {"num_leaves": np.array([leaves]), "num_cat": np.array([categorical])}
    if leaves > 1:
        splits = leaves - 1
        left, right, feature = (numbers(name, splits, int) for name in ("left_child", "right_child", "split_feature"))
        _demand((~np.minimum(left, right) < leaves).all(), "leaves are missing")
        _check_splits(left, right, feature, n_features)
        threshold = numbers("threshold", splits, infinite=True)  # which tells missing values from all others
        decision = numbers("decision_type", splits, int)
        by_category = (decision & 1) == 1
        _demand(((decision >= 0) & (decision < 12)).all(), "a split is of a kind that is not known")
        _demand(((threshold >= 0) & (threshold < categorical))[by_category].all(), "categories are missing")
        tree |= {"split_feature": feature, "split_gain": numbers("split_gain", splits), "threshold": threshold}
        tree |= {"decision_type": decision, "left_child": left, "right_child": right}
    tree["leaf_value"] = numbers("leaf_value", leaves)
    if categorical > 0:
        bounds = numbers("cat_boundaries", categorical + 1, int)
        _demand(bounds[0] == 0 and (np.diff(bounds) >= 0).all(), "categories are missing")
        words = numbers("cat_threshold", bounds[-1], int)
        _demand(((words >= 0) & (words < 2**32)).all(), "categories are missing")
        tree |= {"cat_boundaries": bounds, "cat_threshold": words}
    return tree | {"is_linear": np.array([0]), "shrinkage": np.array([1])}


def checked_xgboost(text: str, empty: str, n_features: int, n_scores: int) -> str:
    """Return JSON of XGBoost, written anew: the trees of a file, all checked, in what the library writes of no trees."""
    given: dict[str, Any] = json.loads(text)["learner"]
    _demand(int(given["learner_model_param"]["num_feature"]) == n_features, "its trees are of another number of columns")
    _demand(int(given["attributes"]["n_scores"]) == n_scores, "its trees are of other classes")
    found, types = given["gradient_booster"]["model"]["trees"], given["feature_types"]
    _demand(isinstance(found, list) and len(found) % n_scores == 0, "trees are missing")
    _demand(len(types) in {0, n_features} and {*types} <= {"c", "q"}, "its columns are of kinds that are not known")
    whole = json.loads(empty)
    model = whole["learner"]["gradient_booster"]["model"]
    model["trees"] = [_xgboost_tree(tree, number, n_features) for number, tree in enumerate(found)]
    model["tree_info"] = list(range(n_scores)) * (len(found) // n_scores)
    model["iteration_indptr"] = list(range(0, len(found) + 1, n_scores))
    model["gbtree_model_param"]["num_trees"] = str(len(found))
    whole["learner"]["feature_types"] = types
    return json.dumps(whole)


def _xgboost_tree(given: dict[str, Any], number: int, n_features: int) -> dict[str, Any]:
    """Return one tree, all its numbers checked."""
    nodes = len(given["left_children"])

    def numbers(name: str, size: int | None = nodes, kind: type = int, most: int = 2**31) -> np.ndarray:
        found: np.ndarray = np.array([kind(value) for value in given[name]], dtype=kind)
        _demand(size is None or len(found) == size, "a tree has parts of different sizes")
        _demand(bool(np.isfinite(found).all()) and bool((np.abs(found) < most).all()), "a tree has numbers out of bounds")
        return found

    left, right, feature = (numbers(name) for name in ("left_children", "right_children", "split_indices"))
    leaf, kind, own = left == -1, numbers("split_type"), np.arange(nodes)
    _demand(
        nodes > 0 and ((right == -1) == leaf).all() and (np.minimum(left, right) >= -1).all(), "a tree does not lead down"
    )
    _check_splits(left, right, feature, n_features)
    children = np.sort(np.concatenate([left[~leaf], right[~leaf]]))
    _demand(np.array_equal(children, own[1:]), "a tree does not lead down")
    parents = np.full(nodes, 2**31 - 1)
    parents[left[~leaf]] = parents[right[~leaf]] = own[~leaf]
    starts, sizes, split = (numbers(f"categories_{name}", None) for name in ("segments", "sizes", "nodes"))
    categories = numbers("categories", None, most=2**24)
    _demand(np.array_equal(split, np.flatnonzero((kind == 1) & ~leaf)), "categories are missing")
    _demand(len(starts) == len(sizes) == len(split) and (categories >= 0).all(), "categories are missing")
    _demand(bool(np.array_equal(starts, np.cumsum(sizes) - sizes)) and (sizes >= 0).all(), "categories are missing")
    _demand(int(sizes.sum()) == len(categories), "categories are missing")
    floats = {
        name: numbers(name, kind=float, most=2**127)
        for name in ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
    }
    whole = {
        "left_children": left,
        "right_children": right,
        "parents": parents,
        "split_indices": feature,
        "split_type": (kind == 1).astype(int),
        "default_left": (numbers("default_left") == 1).astype(int),
        "categories": categories,
        "categories_nodes": split,
        "categories_segments": starts,
        "categories_sizes": sizes,
    }
    sized = {"num_deleted": "0", "num_feature": str(n_features), "num_nodes": str(nodes), "size_leaf_vector": "1"}
    return {name: values.tolist() for name, values in (floats | whole).items()} | {"id": number, "tree_param": sized}
