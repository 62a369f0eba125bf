"""The site's files are laid out, byte for byte, as the published ones."""

import json

from agml_assets.site.results import dump_results, merge_results
from agml_assets.site.umap import dump_points


def test_merging_changes_no_line_of_the_published_reports(conformance):
    text = (conformance / "agml_site" / "results.json").read_text(encoding="utf-8")
    published = json.loads(text)
    backwards = dict(reversed(published.items()))
    assert dump_results(merge_results(backwards, {})) == text
    name = "bean_disease_uganda"
    assert dump_results(merge_results(published, {name: published[name]})) == text


def test_a_report_that_is_added_leaves_the_others_lines_as_they_are(conformance):
    text = (conformance / "agml_site" / "results.json").read_text(encoding="utf-8")
    ours = {"aardvark": {"dataset": "owner/aardvark", "phases_completed": [1, 2]}}
    added = dump_results(merge_results(json.loads(text), ours)).splitlines()
    own = [
        '    "aardvark": {',
        '        "dataset": "owner/aardvark",',
        '        "phases_completed": [1, 2]',
        "    },",
    ]
    assert [line for line in added if line in own[:3]] == own[:3]
    at = added.index(own[0])
    assert added[:at] + added[at + len(own) :] == text.splitlines()


def test_points_have_the_published_text(conformance):
    files = sorted((conformance / "agml_site" / "umap").glob("*_umap_2*.json"))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert dump_points(json.loads(text)) == text
