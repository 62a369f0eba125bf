"""Draws photographs of leaves, healthy or with one of three diseases, from random numbers alone.

One leaf picture is a function of one generator. Files, faults and labels are in `sample`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from PIL import Image, ImageFilter

CONDITIONS = ("blight", "healthy", "leaf_spot", "rust")
"""What a leaf can have; `healthy` is nothing."""

Rgb = tuple[float, float, float]
Plane = Float[np.ndarray, "h w"]
Picture = Float[np.ndarray, "h w 3"]


_DETAIL = 200  # pixels of the long side that are drawn; larger pictures are enlarged, to be quick


@dataclass(frozen=True)
class Leaf:
    """One drawn photograph.

    Attributes:
        image: The photograph, RGB.
        mask: Mode L, as large: 255 where a leaf is, 0 elsewhere.
        background: One of `BACKGROUNDS`.
    """

    image: Image.Image
    mask: Image.Image
    background: str


def draw_leaf(rng: np.random.Generator, condition: str, width: int, height: int) -> Leaf:
    """Draw one or two leaves of a kind, all in the same condition, on one of `BACKGROUNDS`.

    Shape, size, position, colour, light, focus and severity vary; the condition shows in the symptoms alone.

    Args:
        rng: Source of everything that varies.
        condition: One of `CONDITIONS`.
        width: Pixels.
        height: Pixels.
    """
    scale = min(1.0, _DETAIL / max(width, height))
    size = round(height * scale), round(width * scale)
    background = BACKGROUNDS[rng.integers(len(BACKGROUNDS))]
    picture = _BACKGROUNDS[background](rng, *size)
    shape = _SHAPES[rng.integers(len(_SHAPES))]
    green = _leaf_colour(rng)
    count = int(rng.choice([1, 1, 1, 2]))
    spread, turn = (0.12, 0.15) if count == 1 else (0.3, 0.9)
    heading = rng.uniform(0, 2 * math.pi)
    x, y = _grid(*size)
    covered = np.zeros(size, np.float32)
    for _ in range(count):
        length = rng.uniform(1.0, 1.5) if count == 1 else rng.uniform(0.8, 1.1)
        right, down = rng.uniform(-spread, spread), rng.uniform(-spread, spread)
        blade = _blade(rng, shape, x - right, y - down, heading + rng.normal(0, turn), length)
        _shade(rng, picture, blade.cover)
        colour = _paint_blade(rng, blade, green)
        _SYMPTOMS[condition](rng, colour, blade)
        picture += blade.cover[..., None] * (colour - picture)
        covered = np.maximum(covered, blade.cover)
    image = _photograph(rng, picture)
    mask = Image.fromarray((covered * 255).astype(np.uint8))
    whole = (width, height)
    return Leaf(image.resize(whole, Image.Resampling.BICUBIC), mask.resize(whole), background)


# --- Geometry -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Blade:
    """Coordinates of one leaf, for every pixel.

    Attributes:
        cover: 0 outside, 1 inside, between at the rim.
        along: 0 at the stalk, 1 at the tip.
        across: Distance from the midrib in half-lengths, signed.
        depth: 0 at the rim, 1 at the midrib.
        unit: Pixels in a half-length of the leaf.
    """

    cover: Plane
    along: Plane
    across: Plane
    depth: Plane
    unit: float


@dataclass(frozen=True)
class _Shape:
    """Outline of a kind of leaf.

    Attributes:
        base: Exponent of the width at the stalk; small is blunt.
        tip: Exponent of the width at the tip.
        slenderness: Half-width over half-length.
        teeth: Number of teeth along one side.
        tooth: Height of a tooth over the width.
        leaflets: Pairs of leaflets; 0 is a simple leaf.
    """

    base: float
    tip: float
    slenderness: float
    teeth: int = 0
    tooth: float = 0.0
    leaflets: int = 0


_SHAPES = (
    _Shape(base=0.55, tip=0.9, slenderness=0.45),  # egg-shaped, as bean
    _Shape(base=0.8, tip=0.8, slenderness=0.42),  # elliptic, as coffee
    _Shape(base=0.6, tip=1.1, slenderness=0.42),  # pointed, as pepper
    _Shape(base=0.35, tip=1.2, slenderness=0.55),  # heart-shaped, as betel
    _Shape(base=0.5, tip=0.6, slenderness=0.42),  # oval, as plum
    _Shape(base=0.6, tip=0.8, slenderness=0.42, teeth=16, tooth=0.12),  # toothed, as strawberry
    _Shape(base=0.6, tip=0.7, slenderness=0.6, teeth=3, tooth=0.5),  # lobed, as grape
    _Shape(base=0.6, tip=0.8, slenderness=0.8, leaflets=4),  # pinnate, as tomato
    _Shape(base=0.45, tip=0.45, slenderness=0.65),  # round, as nasturtium
)


def _grid(height: int, width: int) -> tuple[Plane, Plane]:
    """Return x and y of the pixels, in half short sides from the centre."""
    half = min(height, width) / 2
    x = (np.arange(width, dtype=np.float32) - width / 2) / half
    y = (np.arange(height, dtype=np.float32) - height / 2) / half
    return np.broadcast_to(x, (height, width)), np.broadcast_to(y[:, None], (height, width))


def _blade(rng: np.random.Generator, shape: _Shape, x: Plane, y: Plane, angle: float, length: float) -> _Blade:
    cos, sin = math.cos(angle), math.sin(angle)
    u = (x * cos + y * sin) / length
    v = (y * cos - x * sin) / length
    v = v - rng.uniform(-0.25, 0.25) * (u * u - 0.3)  # a bent midrib
    along = np.clip((u + 1) / 2, 0, 1)
    slender = shape.slenderness * rng.uniform(0.8, 1.2)
    base, tip = shape.base * rng.uniform(0.85, 1.15), shape.tip * rng.uniform(0.85, 1.15)
    peak = (base / (base + tip)) ** base * (tip / (base + tip)) ** tip
    half_width = slender / peak * along**base * (1 - along) ** tip
    if shape.teeth:
        saw = np.abs(2 * ((along * shape.teeth * rng.uniform(0.9, 1.1) + rng.uniform()) % 1) - 1)
        half_width = half_width * (1 - shape.tooth * saw)
    if shape.leaflets:
        # Leaflets are bumps of the width; gaps between them reach the midrib.
        position = along * (shape.leaflets + 0.5)
        slant = position - np.abs(v) * shape.leaflets * 0.6
        half_width = half_width * np.clip(1.7 * np.abs(np.sin(math.pi * slant)) - 0.35, 0.03, 1)
    ripple = 1 + rng.uniform(0.02, 0.1) * np.sin(along * rng.uniform(6, 25) + np.sign(v) + rng.uniform(0, 6))
    half_width = half_width * ripple
    unit = length * min(x.shape) / 2
    inside = (half_width - np.abs(v)) * unit  # pixels
    depth = np.clip(1 - np.abs(v) / np.maximum(half_width, 1e-3), 0, 1)
    cover = np.clip(inside + 0.5, 0, 1) * ((u > -1) & (u < 1))
    stalk = (np.abs(v) < 0.02) & (u > -1.35) & (u < -0.9)
    return _Blade(np.maximum(cover, stalk).astype(np.float32), along, v, depth, unit)


# --- Colours and textures -------------------------------------------------------------------------


def _noise(rng: np.random.Generator, height: int, width: int, cells: float, octaves: int = 3) -> Plane:
    """Return smooth noise, 0 to 1, with `cells` bumps along the long side and finer ones on top."""
    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        step = max(height, width) / (cells * 2**octave)
        rows, columns = math.ceil(height / step) + 2, math.ceil(width / step) + 2
        grid = rng.random((rows, columns), dtype=np.float32)
        total += 0.55**octave * _stretch(grid, height, width, step)
    low, high = float(total.min()), float(total.max())
    return (total - low) / max(high - low, 1e-6)


def _stretch(grid: Float[np.ndarray, "r c"], height: int, width: int, step: float) -> Plane:
    """Return a grid of values, `step` pixels apart, with smooth values between."""
    left, share = _knots(width, step)
    wide = grid[:, left] * (1 - share) + grid[:, left + 1] * share
    above, share = _knots(height, step)
    return wide[above] * (1 - share[:, None]) + wide[above + 1] * share[:, None]


def _knots(length: int, step: float) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the knot before each pixel, and the share of the one behind it, which rises as a cosine."""
    position = np.arange(length, dtype=np.float32) / np.float32(step)
    before = position.astype(np.int64)
    return before, 0.5 - 0.5 * np.cos(np.float32(math.pi) * (position - before))


def _blend(first: Rgb, second: Rgb, share: Plane) -> Picture:
    a, b = np.array(first, np.float32), np.array(second, np.float32)
    return a + share[..., None] * (b - a)


def _jitter(rng: np.random.Generator, colour: Rgb, spread: float) -> Rgb:
    """Vary the lightness of a colour, and its tint by half as much."""
    r, g, b = np.clip(np.array(colour) * rng.uniform(1 - spread, 1 + spread) + rng.normal(0, spread / 8, 3), 0, 1)
    return float(r), float(g), float(b)


def _soil(rng: np.random.Generator, height: int, width: int) -> Picture:
    dark = _jitter(rng, (0.25, 0.16, 0.1), 0.4)
    light = _jitter(rng, (0.62, 0.45, 0.3), 0.25)
    clods = _noise(rng, height, width, rng.uniform(8, 40), 4)
    return _blend(dark, light, clods * (0.5 + rng.random((height, width), dtype=np.float32) / 2))


def _grass(rng: np.random.Generator, height: int, width: int) -> Picture:
    dark, light = _jitter(rng, (0.1, 0.22, 0.05), 0.4), _jitter(rng, (0.55, 0.68, 0.25), 0.25)
    x, y = _grid(height, width)
    lean = rng.uniform(-0.6, 0.6) + 0.3 * _noise(rng, height, width, 3, 1)
    stalks = np.sin((x + lean * y) * rng.uniform(15, 60) + 8 * _noise(rng, height, width, 12, 2))
    return _blend(dark, light, np.clip(0.5 + 0.3 * stalks + 0.5 * (_noise(rng, height, width, 30, 2) - 0.5), 0, 1))


def _paper(rng: np.random.Generator, height: int, width: int) -> Picture:
    colour = _jitter(rng, (0.9, 0.9, 0.88) if rng.random() < 0.7 else (0.2, 0.25, 0.4), 0.1)
    picture = _blend(colour, _jitter(rng, colour, 0.15), _noise(rng, height, width, 2, 2))
    if rng.random() < 0.35:  # ruled in squares
        x, y = _grid(height, width)
        pitch = rng.uniform(0.08, 0.3)
        lines = ((x + 9) % pitch < 0.012) | ((y + 9) % pitch < 0.012)
        picture[lines] *= rng.uniform(0.6, 0.85)
    return picture


def _sky(rng: np.random.Generator, height: int, width: int) -> Picture:
    clouds = np.clip(_noise(rng, height, width, rng.uniform(2, 5), 4) * 2 - rng.uniform(0.4, 1.1), 0, 1)
    top, white = _jitter(rng, (0.3, 0.52, 0.85), 0.25), _jitter(rng, (0.93, 0.94, 0.97), 0.05)
    return _blend(top, white, clouds)


def _wood(rng: np.random.Generator, height: int, width: int) -> Picture:
    x, y = _grid(height, width)
    if rng.random() < 0.5:
        x, y = y, x
    grain = y * rng.uniform(4, 14) + rng.uniform(0.5, 3) * _noise(rng, height, width, 3, 2) + 0.3 * x
    rings = np.abs((grain % 1) * 2 - 1)
    planks = 0.85 + 0.3 * ((np.floor((y + 5) / rng.uniform(0.5, 1.2)) * 0.618) % 1)
    dark, light = _jitter(rng, (0.35, 0.2, 0.1), 0.35), _jitter(rng, (0.75, 0.55, 0.35), 0.25)
    return _blend(dark, light, rings) * planks[..., None]


def _foliage(rng: np.random.Generator, height: int, width: int) -> Picture:
    dark, light = _jitter(rng, (0.03, 0.1, 0.04), 0.5), _jitter(rng, (0.45, 0.6, 0.3), 0.3)
    picture = _blend(dark, light, _noise(rng, height, width, rng.uniform(3, 9), 2) ** 2)
    gaps = np.clip(_noise(rng, height, width, rng.uniform(4, 12), 1) * 4 - 3.2, 0, 1)
    return picture + gaps[..., None] * 0.6


def _stones(rng: np.random.Generator, height: int, width: int) -> Picture:
    x, y = _grid(height, width)
    count = int(rng.integers(12, 60))
    reach = max(height, width) / min(height, width)
    centres = rng.uniform(-reach, reach, (count, 2)).astype(np.float32)
    first = second = np.full((height, width), 9, np.float32)
    tint = np.zeros((height, width), np.float32)
    for cx, cy in centres:
        distance = (x - cx) ** 2 + (y - cy) ** 2
        nearer = distance < first
        second = np.where(nearer, first, np.minimum(second, distance))
        first = np.where(nearer, distance, first)
        tint = np.where(nearer, (cx * 7.1 + cy * 3.7) % 1, tint)
    joints = np.clip((np.sqrt(second) - np.sqrt(first)) * 12, 0, 1)
    colours = _blend(_jitter(rng, (0.45, 0.43, 0.42), 0.3), _jitter(rng, (0.75, 0.68, 0.6), 0.2), tint)
    return colours * (0.3 + 0.7 * joints)[..., None] * (0.85 + 0.3 * _noise(rng, height, width, 30, 2))[..., None]


def _cloth(rng: np.random.Generator, height: int, width: int) -> Picture:
    x, y = _grid(height, width)
    first = (float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.1, 0.9)))
    second = _jitter(rng, (0.85, 0.83, 0.8), 0.15)
    angle, pitch = rng.uniform(0, math.pi), rng.uniform(3, 14)
    warp = np.sin((x * math.cos(angle) + y * math.sin(angle)) * pitch)
    weft = np.sin((y * math.cos(angle) - x * math.sin(angle)) * pitch)
    stripes = (warp > 0) * 0.5 + (weft > rng.uniform(-1, 2)) * 0.5
    return (
        _blend(first, second, stripes.astype(np.float32))
        * (0.8 + 0.3 * _noise(rng, height, width, 4, 2))[..., None]
    )


_BACKGROUNDS: dict[str, Callable[[np.random.Generator, int, int], Picture]] = {
    "cloth": _cloth,
    "foliage": _foliage,
    "grass": _grass,
    "paper": _paper,
    "sky": _sky,
    "soil": _soil,
    "stones": _stones,
    "wood": _wood,
}
BACKGROUNDS = tuple(_BACKGROUNDS)
"""What leaves lie on or are seen against."""


def _leaf_colour(rng: np.random.Generator) -> Rgb:
    """Return a green between yellowish and bluish, light and dark."""
    young, old = np.array([0.5, 0.7, 0.25]), np.array([0.1, 0.35, 0.15])
    red, green, blue = young + rng.uniform(0, 1) * (old - young)
    return _jitter(rng, (float(red), float(green), float(blue)), 0.12)


def _shade(rng: np.random.Generator, picture: Picture, cover: Plane) -> None:
    """Darken the picture where the leaf's soft shadow falls."""
    height, width = cover.shape
    step = int(rng.integers(4, 12))
    soft = _stretch(np.pad(cover[::step, ::step], ((0, 2), (0, 2))), height, width, step)
    shift = (int(rng.integers(-12, 13)), int(rng.integers(-12, 13)))
    picture *= (1 - rng.uniform(0.1, 0.6) * np.roll(soft, shift, (0, 1)))[..., None]


def _paint_blade(rng: np.random.Generator, blade: _Blade, green: Rgb) -> Picture:
    """Return the colours of a healthy leaf: mottled, veined, lighter or darker towards the rim."""
    height, width = blade.cover.shape
    mottle = _noise(rng, height, width, rng.uniform(5, 25), 3)
    colour = _blend(_jitter(rng, green, 0.1), _jitter(rng, green, 0.3), mottle)
    pairs, slant = rng.uniform(5, 16), rng.uniform(0.5, 1.6)
    phase = (blade.along * pairs - np.abs(blade.across) * slant * pairs / 2) % 1
    thin = rng.uniform(0.04, 0.12)
    veins = np.maximum(
        np.clip(1 - np.abs(phase - 0.5) / thin, 0, 1) * 0.7,
        np.clip(1 - np.abs(blade.across) / rng.uniform(0.015, 0.04), 0, 1),
    )
    strength = rng.uniform(-0.12, 0.25)
    colour += (veins * strength)[..., None]
    bulge = np.cos((phase - 0.5) * 2 * math.pi) * rng.uniform(0, 0.12)
    colour *= (1 - bulge + rng.uniform(-0.25, 0.25) * blade.depth)[..., None]
    side = 1 + rng.uniform(-0.2, 0.2) * np.sign(blade.across)
    return np.clip(colour * side[..., None], 0, 1)


# --- Symptoms -------------------------------------------------------------------------------------


# Strong enough for a small network to tell them apart: what is found of planted label errors shall be the
# tool's merit, not luck.


def _healthy(rng: np.random.Generator, colour: Picture, blade: _Blade) -> None:
    """Leave the leaf alone."""


def _rust(rng: np.random.Generator, colour: Picture, blade: _Blade) -> None:
    """Turn the leaf yellowish and scatter very many small orange pustules."""
    pale = _jitter(rng, (0.85, 0.75, 0.25), 0.1)
    _stain(colour, np.full(blade.cover.shape, rng.uniform(0.55, 0.8), np.float32), pale)
    orange = _jitter(rng, (0.75, 0.26, 0.03), 0.12)
    size = rng.uniform(0.022, 0.04)
    for row, column in _places(rng, blade, int(rng.integers(150, 300))):
        radius = max(2.0, blade.unit * size * rng.uniform(0.6, 1.5))
        _spot(colour, row, column, radius, orange, 0.95)


def _blight(rng: np.random.Generator, colour: Picture, blade: _Blade) -> None:
    """Let brown, ragged, zoned patches with a yellow front take most of the leaf."""
    height, width = blade.cover.shape
    ragged = _noise(rng, height, width, rng.uniform(4, 9), 4)
    reach = _noise(rng, height, width, rng.uniform(2, 4), 1) - rng.uniform(-0.05, 0.12)
    dead = reach * 3 + (ragged - 0.5) * 0.9
    zones = 0.7 + 0.3 * np.sin(dead * rng.uniform(8, 25))
    brown = np.array(_jitter(rng, (0.38, 0.25, 0.15), 0.2), np.float32) * zones[..., None]
    _stain(colour, np.clip(1 - np.abs(dead) * 5, 0, 1) * 0.7, _jitter(rng, (0.8, 0.74, 0.3), 0.1))
    share = np.clip(dead * 8, 0, 1)[..., None]
    colour += share * (brown - colour)


def _leaf_spot(rng: np.random.Generator, colour: Picture, blade: _Blade) -> None:
    """Set large round spots with a dark ring and a pale centre."""
    ring = _jitter(rng, (0.12, 0.07, 0.08), 0.25)
    centre = _jitter(rng, (0.9, 0.86, 0.8), 0.08)
    size = rng.uniform(0.07, 0.11)
    for row, column in _places(rng, blade, int(rng.integers(14, 30))):
        radius = max(4.0, blade.unit * size * rng.uniform(0.7, 1.3))
        _spot(colour, row, column, radius, ring, 0.97)
        _spot(colour, row, column, radius * 0.6, centre, 0.97)


_SYMPTOMS: dict[str, Callable[[np.random.Generator, Picture, _Blade], None]] = {
    "blight": _blight,
    "healthy": _healthy,
    "leaf_spot": _leaf_spot,
    "rust": _rust,
}


def _places(rng: np.random.Generator, blade: _Blade, count: int) -> list[tuple[int, int]]:
    """Return pixels all over the leaf."""
    rows, columns = np.nonzero(blade.cover > 0.9)
    if rows.size == 0:
        return []
    picks = rng.integers(rows.size, size=count)
    return list(zip(rows[picks].tolist(), columns[picks].tolist(), strict=True))


def _spot(colour: Picture, row: int, column: int, radius: float, paint: Rgb, strength: float) -> None:
    """Paint a soft disc."""
    reach = math.ceil(radius) + 1
    top, left = max(row - reach, 0), max(column - reach, 0)
    part = colour[top : row + reach + 1, left : column + reach + 1]
    y = np.arange(top, top + part.shape[0], dtype=np.float32)[:, None] - row
    x = np.arange(left, left + part.shape[1], dtype=np.float32) - column
    share = np.clip(radius - np.sqrt(x * x + y * y) + 0.5, 0, 1) * strength
    _stain(part, share, paint)


def _stain(colour: Picture, share: Plane, paint: Rgb) -> None:
    colour += share[..., None] * (np.array(paint, np.float32) - colour)


def _photograph(rng: np.random.Generator, picture: Picture) -> Image.Image:
    """Light the scene from one side, take it with a camera that has colour cast, noise and imperfect focus."""
    height, width, _ = picture.shape
    x, y = _grid(height, width)
    angle = rng.uniform(0, 2 * math.pi)
    light = 1 + rng.uniform(0, 0.35) * (x * math.cos(angle) + y * math.sin(angle))
    if rng.random() < 0.25:  # dappled
        light = light * (0.6 + 0.8 * np.clip(_noise(rng, height, width, rng.uniform(2, 6), 2) * 2 - 0.5, 0, 1))
    cast = rng.uniform(0.88, 1.12, 3).astype(np.float32) * np.float32(rng.uniform(0.75, 1.2))
    picture = picture * light[..., None] * cast
    picture = (np.clip(picture, 0, 1) - 0.5) * rng.uniform(0.8, 1.25) + 0.5
    picture += rng.standard_normal((height, width, 1), dtype=np.float32) * np.float32(rng.uniform(0.003, 0.03))
    image = Image.fromarray(np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8))
    return image.filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 1.4))) if rng.random() < 0.3 else image
