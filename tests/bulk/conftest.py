"""A Ray cluster of two nodes on this machine, shared by all tests of a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

STORE = 100 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimpleNamespace]:
    """Two nodes of one core each, this process joined to them."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'genprm[ray]'")
    from genprm.bulk.cluster import import_ray

    ray = import_ray()
    from ray.cluster_utils import Cluster

    from . import watched

    before = os.environ.get("PYTHONPATH")
    ray.cloudpickle.register_pickle_by_value(watched)
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False},
    )
    node = made.add_node(num_cpus=1, object_store_memory=STORE)
    ray.init(made.address, log_to_driver=False, logging_level="ERROR")
    yield SimpleNamespace(ray=ray, cluster=made, node=node, address=made.address, python=sys.executable)
    ray.shutdown()
    made.shutdown()
    ray.cloudpickle.unregister_pickle_by_value(watched)
    assert os.environ.get("PYTHONPATH") == before
