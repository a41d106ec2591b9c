"""The manifests and job files in `examples/`: what can be checked of them without a cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from genprm.config import Config, load_config

ROOT = Path(__file__).parent.parent.parent / "examples"
MANIFESTS = sorted((ROOT / "kubernetes").glob("*.yaml"))
JOBS = sorted((ROOT / "slurm").glob("*.sbatch"))


def documents(path):
    return list(yaml.safe_load_all(path.read_text()))


def every(kind):
    return [item for path in MANIFESTS for item in documents(path) if item["kind"] == kind]


def test_there_are_examples():
    assert {path.name for path in MANIFESTS} == {"vllm.yaml", "genprm.yaml"}
    assert {path.name for path in JOBS} == {"ray.sbatch", "shards.sbatch"}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_every_object_has_what_kubernetes_requires(path):
    for item in documents(path):
        assert item["apiVersion"]
        assert item["metadata"]["name"]
        if item["kind"] == "Deployment":
            labels = item["spec"]["selector"]["matchLabels"]
            assert labels.items() <= item["spec"]["template"]["metadata"]["labels"].items()
        if item["kind"] in ("Deployment", "Service"):
            assert item["spec"]


def test_every_service_leads_to_a_port_of_a_deployment():
    deployments = {item["metadata"]["name"]: item["spec"]["template"] for item in every("Deployment")}
    for service in every("Service"):
        template = deployments[service["metadata"]["name"]]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        names = {port["name"] for box in template["spec"]["containers"] for port in box["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names


def test_volumes_that_are_mounted_are_there():
    for deployment in every("Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        mounted = {mount["name"] for box in pod["containers"] for mount in box["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_probes_ask_routes_that_the_service_has():
    pytest.importorskip("fastapi", reason="the service is not installed")
    routes = (Path(__file__).parent.parent.parent / "genprm" / "serve" / "health.py").read_text()
    (pod,) = [item["spec"]["template"]["spec"] for item in every("Deployment") if item["metadata"]["name"] == "genprm"]
    (box,) = pod["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert f'"{box[probe]["httpGet"]["path"]}"' in routes
    assert box["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert box["livenessProbe"]["httpGet"]["path"] == "/health/live"


def test_a_pod_gets_longer_to_end_than_the_service_drains(tmp_path):
    (text,) = [item["data"]["genprm.yaml"] for item in every("ConfigMap")]
    (tmp_path / "genprm.yaml").write_text(text)
    settings = load_config(str(tmp_path / "genprm.yaml"))
    (pod,) = [item["spec"]["template"]["spec"] for item in every("Deployment") if item["metadata"]["name"] == "genprm"]
    assert pod["terminationGracePeriodSeconds"] > settings.serve.drain_seconds
    host = re.search(r"//([\w-]+):8000", str(settings.backend.base_url))
    assert host is not None
    assert host[1] in {service["metadata"]["name"] for service in every("Service")}


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_a_job_file_is_bash_with_slurm_settings(path):
    text = path.read_text()
    assert text.startswith("#!/bin/bash\n")
    assert {"job-name", "time"} <= set(re.findall(r"^#SBATCH --([\w-]+)", text, re.MULTILINE))
    assert "set -euo pipefail" in text
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-n", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_settings_in_a_job_file_exist(path):
    keys = re.findall(r"--set ([\w.]+)=", path.read_text())
    assert keys
    for key in keys:
        section: type = Config
        for part in key.split("."):
            section = section.model_fields[part].annotation
