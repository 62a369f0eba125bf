"""The page of models over the published results: the published means, and R2 as others measured it."""

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from agml_assets.evaluation.published import read_results
from agml_assets.registry.models import load_models
from agml_assets.registry.tasks import load_tasks
from agml_assets.site.page_models import ModelResults
from agml_assets.site.pages import SiteData, build_pages
from tests.site.test_page_models_in_browser import cells
from tests.site.test_pages_in_browser import browser, folder, look  # noqa: F401

pytestmark = pytest.mark.slow


def test_the_published_results_give_the_published_means(browser, tmp_path, conformance):  # noqa: F811
    published = read_results(conformance / "biobench" / "results.json")
    tasks = {entry.key: entry for entry in load_tasks().entries}
    models = ModelResults(published=published, registered=load_models().published(), tasks=tasks)
    (tmp_path / "models.html").write_text(build_pages(SiteData(models=models))["models.html"], "utf-8")
    look(browser, (tmp_path / "models.html").as_uri())
    scores, counting = published.scores(), [key for key, task in tasks.items() if task.counts_in_mean]
    assert len(counting) == 9
    means = [
        np.mean([scores[task, one.ckpt] for task in counting])
        for one in published.models
        if all((task, one.ckpt) in scores for task in counting)
    ]
    assert cells(browser, "Mean over tasks")[:30] == [
        f"{100 * mean:.1f}" for mean in sorted(means, reverse=True)[:30]
    ]
    # As measured on this file by others: R2 = 0.555 of 84 models.
    assert (
        "84 models published (rings, dashed line): R² = 0.55." in browser.find_element(By.ID, "imagenet-said").text
    )
