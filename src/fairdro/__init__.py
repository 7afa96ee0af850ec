"""Group-fair training by classwise distributionally robust optimisation."""

from fairdro.data import load_dataset

__all__ = ["load_dataset"]
