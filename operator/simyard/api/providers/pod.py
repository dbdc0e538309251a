"""Workers as pods."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ApiModel, Name


class PodProvider(ApiModel):
    """Workers are pods of the cluster that runs the operator."""

    service_account_name: Annotated[Name | None, Field(description="Identity of the worker pods; none by default.")] = (
        None
    )
