"""Owns the routes of web access: what the instance and each agent have set, and what counts.

Refuses to answer with a key, or with a piece of one; a change of the instance's from anyone but an
admin; and to say more of a change than that no later call is admitted on what was offered before.
"""

from __future__ import annotations

from typing import Final

from mesh.control.agents import not_found
from mesh.control.connections import Shelf, grant_of
from mesh.control.web_access import used_provider
from mesh.control.web_rules import Wanted
from mesh.kernel.clock import rfc3339
from mesh.operator.agents import agent_of
from mesh.operator.route import Answer, Call, Needs, Route, nothing
from mesh.operator.shapes.base import Nothing
from mesh.operator.shapes.web_access import (
    AgentWebAccessPut,
    ConfigFieldShown,
    InstanceWebAccessPut,
    KeptKeyShown,
    ProviderShown,
    WebAccessList,
    WebAccessShown,
    WebLimitsShown,
    WebLimitsTaken,
    WebSettingsShown,
)
from mesh.records.agent import Agent
from mesh.records.connection import Capability, Connection, Grant, Mode, Provider
from mesh.records.value import CredentialSource
from mesh.tools.web.catalogue import PROVIDERS

NOTHING_SET: Final = Shelf({}, {})
"""What an agent has that nobody ever touched."""


def capability_of(call: Call) -> Capability:
    """The path's capability. Raises `not_found`."""
    try:
        return Capability(call.path["capability"])
    except ValueError:
        raise not_found() from None


def _in_agent(call: Call) -> tuple[Agent, Capability]:
    return agent_of(call), capability_of(call)


def _list(call: Call, _: None, __: Nothing) -> Answer:
    return Answer(_every(call, None))


def _get(call: Call, capability: Capability, _: Nothing) -> Answer:
    return Answer(_one(call, None, capability))


def _put(call: Call, capability: Capability, body: InstanceWebAccessPut) -> Answer:
    return _changed(call, None, capability, body)


def _list_of_agent(call: Call, agent: Agent, _: Nothing) -> Answer:
    return Answer(_every(call, agent))


def _get_of_agent(call: Call, subject: tuple[Agent, Capability], _: Nothing) -> Answer:
    return Answer(_one(call, *subject))


def _put_of_agent(call: Call, subject: tuple[Agent, Capability], body: AgentWebAccessPut) -> Answer:
    return _changed(call, *subject, body)


def _changed(
    call: Call,
    agent: Agent | None,
    capability: Capability,
    body: InstanceWebAccessPut | AgentWebAccessPut,
) -> Answer:
    limits = body.limits or WebLimitsTaken()
    wanted = Wanted(
        capability=capability,
        mode=Mode(body.mode),
        provider=body.provider or None,
        config=body.config,
        requests_per_minute=limits.requests_per_minute,
        requests_per_run=limits.requests_per_run,
        api_key=body.api_key,
        clear_key=body.clear_key,
    )
    call.plane.web_access.put(agent, wanted, version=body.version, cause=call.cause)
    return Answer(_one(call, agent, capability))


def _every(call: Call, agent: Agent | None) -> WebAccessList:
    own, instance = _shelves(call, agent)
    return WebAccessList(capabilities=[_shown(each, agent, own, instance) for each in Capability])


def _one(call: Call, agent: Agent | None, capability: Capability) -> WebAccessShown:
    return _shown(capability, agent, *_shelves(call, agent))


def _shelves(call: Call, agent: Agent | None) -> tuple[Shelf, Shelf]:
    """What the agent has set, and what the instance has."""
    instance = call.plane.web_access.shelf(None)
    return NOTHING_SET if agent is None else call.plane.web_access.shelf(agent), instance


def _shown(
    capability: Capability, agent: Agent | None, own: Shelf, instance: Shelf
) -> WebAccessShown:
    """How it stands for the agent; for the instance, for an agent that nobody touched."""
    mine = instance if agent is None else own
    settings = mine.connections.get(capability)
    used, grant = used_provider(capability, own, instance), grant_of(capability, own, instance)
    return WebAccessShown(
        capability=capability,
        providers=[
            _provider(each) for each in PROVIDERS.values() if capability in each.capabilities
        ],
        settings=None if settings is None else _settings(settings),
        effective_provider=None if used is None else used[0],
        credential_source=None if used is None else used[1],
        credential_present=_present(settings, used, mine, own, instance),
        available=isinstance(grant, Grant),
        reason=None if isinstance(grant, Grant) else grant,
        effective_limits=WebLimitsShown(
            requests_per_minute=grant.requests_per_minute, requests_per_run=grant.requests_per_run
        )
        if isinstance(grant, Grant)
        else None,
        kept_keys=[
            KeptKeyShown(provider=name, version=key.version, updated_at=rfc3339(key.updated_at))
            for name, key in sorted(mine.keys.items())
            if name in PROVIDERS and capability in PROVIDERS[name].capabilities
        ],
    )


def _present(
    settings: Connection | None,
    used: tuple[str, CredentialSource] | None,
    mine: Shelf,
    own: Shelf,
    instance: Shelf,
) -> bool:
    if used is None:  # what is disabled may name the provider that it had
        return settings is not None and settings.provider in mine.keys
    name, source = used
    return name in (own if source is CredentialSource.AGENT else instance).keys


def _settings(connection: Connection) -> WebSettingsShown:
    limits = WebLimitsShown(
        requests_per_minute=connection.requests_per_minute,
        requests_per_run=connection.requests_per_run,
    )
    return WebSettingsShown(
        mode=connection.mode,
        provider=connection.provider,
        config=connection.config,
        limits=None if limits == _NO_LIMITS else limits,
        version=connection.version,
    )


_NO_LIMITS: Final = WebLimitsShown(requests_per_minute=None, requests_per_run=None)


def _provider(provider: Provider) -> ProviderShown:
    return ProviderShown(
        name=provider.name,
        title=provider.title,
        capabilities=list(provider.capabilities),
        origin=provider.origin,
        key_hint=provider.key_hint,
        config=[
            ConfigFieldShown(name=each.name, title=each.title, pattern=each.pattern, hint=each.hint)
            for each in provider.config
        ],
        query_characters_max=provider.query_characters_max,
        query_words_max=provider.query_words_max,
        redirects=provider.redirects,
        subrequests=provider.subrequests,
        restricts_hosts=provider.restricts_hosts,
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/web-access",
        operation="listWebAccess",
        summary="What every agent may use the web by, unless it has settings of its own",
        needs=Needs.VIEWER,
        find=nothing,
        takes=Nothing,
        act=_list,
        answers=WebAccessList,
    ),
    Route(
        method="GET",
        path="/api/web-access/{capability}",
        operation="getWebAccess",
        summary="One capability of the instance's web access",
        needs=Needs.VIEWER,
        find=capability_of,
        takes=Nothing,
        act=_get,
        answers=WebAccessShown,
    ),
    Route(
        method="PUT",
        path="/api/web-access/{capability}",
        operation="putWebAccess",
        summary="Replace the instance's settings for a capability, from the next admission on",
        needs=Needs.ADMIN,
        find=capability_of,
        takes=InstanceWebAccessPut,
        act=_put,
        answers=WebAccessShown,
    ),
    Route(
        method="GET",
        path="/api/agents/{slug}/web-access",
        operation="listAgentWebAccess",
        summary="What an agent has set for the web, and what counts for it",
        needs=Needs.VIEWER,
        find=agent_of,
        takes=Nothing,
        act=_list_of_agent,
        answers=WebAccessList,
    ),
    Route(
        method="GET",
        path="/api/agents/{slug}/web-access/{capability}",
        operation="getAgentWebAccess",
        summary="One capability of an agent's web access",
        needs=Needs.VIEWER,
        find=_in_agent,
        takes=Nothing,
        act=_get_of_agent,
        answers=WebAccessShown,
    ),
    Route(
        method="PUT",
        path="/api/agents/{slug}/web-access/{capability}",
        operation="putAgentWebAccess",
        summary="Replace an agent's settings for a capability, from the next admission on",
        needs=Needs.OPERATOR,
        find=_in_agent,
        takes=AgentWebAccessPut,
        act=_put_of_agent,
        answers=WebAccessShown,
    ),
)
