# SPDX-License-Identifier: Apache-2.0
"""The Python client of Simyard: services, pools, calls, batches, studies, files and logs, in scripts and notebooks.

``connect()`` is the entry; docs/python.md is the guide. All objects are synchronous, and a loop thread of the client
does the work. The futures of calls can be awaited, so coroutines use the same objects. Nothing is sent at import.
"""

from simyard_client.actions import ServiceAction
from simyard_client.batches import Batch
from simyard_client.client import Client, connect
from simyard_client.display import Table
from simyard_client.errors import (
    ActionError,
    ActionFailedError,
    AlreadyExistsError,
    CancelledError,
    ClosedError,
    ConfigError,
    ConflictError,
    ConnectionFailedError,
    ConnectorCrashedError,
    FileError,
    FileTransferFailedError,
    ForbiddenError,
    InterruptedActionError,
    InvalidError,
    InvalidParametersError,
    InvalidResultError,
    NoAnswerError,
    NotFoundError,
    NoWorkerReadyError,
    OutcomeUnknownError,
    Problem,
    RequestError,
    ResultTooLargeError,
    SimyardError,
    StudyFailedError,
    TargetNotFoundError,
    TimedOutError,
    TooLargeError,
    TooManyActionsError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
    UnknownActionError,
    WorkerLostError,
)
from simyard_client.files import File
from simyard_client.futures import Future, as_completed
from simyard_client.interface import Action, Interface, Value
from simyard_client.pools import Pool, PoolNotReadyError, Service, Worker
from simyard_client.results import Result
from simyard_client.studies import Range, Study

__all__ = [
    "Action",
    "ActionError",
    "ActionFailedError",
    "AlreadyExistsError",
    "Batch",
    "CancelledError",
    "Client",
    "ClosedError",
    "ConfigError",
    "ConflictError",
    "ConnectionFailedError",
    "ConnectorCrashedError",
    "File",
    "FileError",
    "FileTransferFailedError",
    "ForbiddenError",
    "Future",
    "Interface",
    "InterruptedActionError",
    "InvalidError",
    "InvalidParametersError",
    "InvalidResultError",
    "NoAnswerError",
    "NoWorkerReadyError",
    "NotFoundError",
    "OutcomeUnknownError",
    "Pool",
    "PoolNotReadyError",
    "Problem",
    "Range",
    "RequestError",
    "Result",
    "ResultTooLargeError",
    "Service",
    "ServiceAction",
    "SimyardError",
    "Study",
    "StudyFailedError",
    "Table",
    "TargetNotFoundError",
    "TimedOutError",
    "TooLargeError",
    "TooManyActionsError",
    "TooManyRequestsError",
    "UnauthorizedError",
    "UnavailableError",
    "UnknownActionError",
    "Value",
    "Worker",
    "WorkerLostError",
    "as_completed",
    "connect",
]
__version__ = "0.1.0"
