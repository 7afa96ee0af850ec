"""Whether a picture shows what the committed one shows, whichever versions of the libraries drew it."""

import numpy as np
from PIL import Image

BLOCK = 8  # pixels; smoother edges, or all of it a pixel further, move the mean colour of a block by 0.13 or less
TOLERANCE = 0.15


def difference(drawn, committed):
    """Return by how much of its range the mean colour of a block of pixels differs at most; 1 where the sizes differ."""
    pictures = [Image.open(path).convert("RGB") for path in (drawn, committed)]
    if not np.allclose(*(picture.size for picture in pictures), rtol=0.01):
        return 1.0
    size = [length // BLOCK for length in pictures[1].size]
    one, other = (np.asarray(picture.resize(size, Image.Resampling.BOX), dtype=np.float64) for picture in pictures)
    return np.abs(one - other).max() / 255
