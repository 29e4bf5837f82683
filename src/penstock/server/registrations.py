"""Who hears of what in a broker, and in which order: always this one, so that the simulation repeats exactly.

A new part of the broker that follows the metadata, the roles of its replicas or the settings is one line more here.
"""

from penstock.config.live import LiveConfig
from penstock.coordination.image import ImageDelta
from penstock.core.news import News
from penstock.replication.partition import Partition
from penstock.server.cluster import ClusterMember
from penstock.server.connections import Connections
from penstock.services.configs import ConfigService
from penstock.services.coordinator.group_kind import GroupCoordinator
from penstock.services.hosting.following import HostingLoop
from penstock.services.hosting.hosting import Hosting
from penstock.services.transactions.kind import TransactionCoordinator

Coordinators = tuple[GroupCoordinator, TransactionCoordinator]


def hear_of_images(
    images: News[ImageDelta],
    cluster: ClusterMember,
    coordinators: Coordinators,
    configs: ConfigService,
    hosting: HostingLoop,
) -> None:
    """They are told from inside the metadata store, whoever wrote. All but the coordinators, which append, only take
    notes for their tasks; none reads what another one noted, so any order would do."""
    for coordinator in coordinators:
        images.register(coordinator.image_changed)
    images.register(cluster.relays.image_changed)
    images.register(cluster.failure_detector.image_changed)
    images.register(cluster.controller.image_changed)
    images.register(configs.image_changed)
    images.register(hosting.image_changed)


def hear_of_roles(roles: News[Partition], cluster: ClusterMember, coordinators: Coordinators) -> None:
    """A replica here began or ceased to lead, or was retired while it led. Any order would do."""
    for coordinator in coordinators:
        roles.register(coordinator.role_changed)
    roles.register(cluster.relays.role_changed)


def hear_of_settings(
    config: LiveConfig,
    cluster: ClusterMember,
    connections: Connections,
    hosting: Hosting,
    coordinators: Coordinators,
) -> None:
    """Only those who keep what follows from the settings: all others ask when they need one."""
    config.changes.register(connections.settings_changed)
    config.changes.register(cluster.fetchers.settings_changed)
    config.changes.register(cluster.controller.settings_changed)
    # Topics before groups: how large a group's records may be follows from what its topic inherits.
    config.changes.register(hosting.settings_changed)
    for coordinator in coordinators:
        config.changes.register(coordinator.settings_changed)
