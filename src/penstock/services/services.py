"""What the front ends may ask of the broker: a plain bundle, put together by `server`."""

from dataclasses import dataclass

from penstock.config.live import LiveConfig
from penstock.controller.controller import Controller
from penstock.coordination.image import ClusterImage
from penstock.core.clock import Clock
from penstock.core.endpoints import Endpoint
from penstock.replication.introduction import BrokerAuthenticator
from penstock.replication.table import PartitionTable
from penstock.services.configs import ConfigService
from penstock.services.coordinator.group_admin import GroupAdminService
from penstock.services.coordinator.group_kind import GroupCoordinator
from penstock.services.coordinator.group_offsets import GroupOffsetService
from penstock.services.coordinator.memberships import MembershipService
from penstock.services.coordinator.transactional_offsets import TransactionalOffsetService
from penstock.services.delete_records import DeletionService
from penstock.services.fetching.service import FetchService
from penstock.services.list_offsets import OffsetService
from penstock.services.maintenance.disk_usage import DiskUsage
from penstock.services.peers.controller_client import ControllerClient
from penstock.services.producer_ids import ProducerIds
from penstock.services.reassignments import Reassignments
from penstock.services.refusals import Refusals
from penstock.services.relay.relays import Relays
from penstock.services.retiring import RetiringService
from penstock.services.topics.service import TopicService
from penstock.services.transactions.hanging import HangingTransactions
from penstock.services.transactions.kind import TransactionCoordinator
from penstock.services.transactions.marker_sender import MarkerSender
from penstock.services.transactions.markers import MarkerWriter
from penstock.services.transactions.service import TransactionService
from penstock.services.transactions.verifying import TransactionVerifier
from penstock.services.writer import Writer


@dataclass(slots=True)
class Node:
    """This broker."""

    id: int
    rack: str | None
    endpoints: tuple[
        Endpoint, ...
    ] = ()  # where clients of each listener are told to reach it, once it listens


@dataclass(slots=True)
class Services:
    node: Node
    config: LiveConfig
    clock: Clock
    image: ClusterImage
    table: PartitionTable
    writer: Writer
    fetch: FetchService
    topics: TopicService
    offsets: OffsetService
    producer_ids: ProducerIds
    configs: ConfigService
    deletions: DeletionService
    disk_usage: DiskUsage
    coordinator: GroupCoordinator
    memberships: MembershipService
    group_offsets: GroupOffsetService
    transactional_offsets: TransactionalOffsetService
    group_admin: GroupAdminService
    transaction_coordinator: TransactionCoordinator
    transactions: TransactionService
    verifier: TransactionVerifier
    marker_writer: MarkerWriter
    hanging: HangingTransactions
    marker_sender: MarkerSender
    controller: Controller
    controller_client: ControllerClient
    reassignments: Reassignments
    retiring: RetiringService
    relays: Relays
    authenticator: BrokerAuthenticator
    refusals: Refusals
