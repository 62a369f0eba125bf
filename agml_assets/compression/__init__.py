"""How much a compressed embedding keeps: fixed-size vectors probed over many tasks."""
