"""What tests of running clusters begin with."""

from tests.cluster.clusters import make_witness as make_witness  # noqa: PLC0414 - a fixture
from tests.cluster.clusters import witness as witness  # noqa: PLC0414 - a fixture
