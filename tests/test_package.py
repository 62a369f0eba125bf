"""What an installed package brings along."""

from importlib.resources import files


def test_the_package_says_that_it_is_typed():
    assert (files("agml_assets") / "py.typed").is_file()
