"""The objects of `docs/kubernetes.yaml` fit together."""

import pytest

from tests.docs import pages

yaml = pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def objects():
    text = (pages.ROOT / "docs/kubernetes.yaml").read_text("utf-8")
    return {thing["kind"]: thing for thing in yaml.safe_load_all(text)}


def test_the_service_and_the_policy_are_of_the_jobs_pods(objects):
    # Kubernetes gives the pods of a Job this label.
    label = {"job-name": objects["Job"]["metadata"]["name"]}
    assert objects["Service"]["spec"]["selector"] == label
    policy = objects["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == label
    assert policy["policyTypes"] == ["Ingress"]
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    assert peer == {"podSelector": {"matchLabels": label}}
