"""What routes that take bodies work with."""

from typing import NamedTuple

from poe.gateway.http.admission import Admission
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.inflow import Inflow
from poe.gateway.http.options import GatewayOptions


class GatewayParts(NamedTuple):
    """Of one gateway, for all of its routes."""

    options: GatewayOptions
    brokers: Brokers
    inflow: Inflow
    admission: Admission
