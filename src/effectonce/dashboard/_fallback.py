"""The playground of model fallback: a chain of models, one of which is down for a while."""

from __future__ import annotations

import json
from typing import TypeAlias

from starlette.responses import Response

from effectonce.dashboard._playground import Simulations, number_in
from effectonce.dashboard._request import DashboardRequest
from effectonce.policy import Retry
from effectonce.simulate.fallback import Chain, FallbackResult, Model, beside, simulate

CHAIN_MAX, NAME_MAX = 3, 60
FIRST = {
    "name0": "large",
    "price0": "15",
    "latency0": "2",
    "fails0": "1",
    "name1": "small",
    "price1": "3",
    "latency1": "1",
    "fails1": "2",
    "name2": "",
    "price2": "",
    "latency2": "",
    "fails2": "",
    "attempts": "3",
    "base_s": "0.5",
    "cap_s": "20",
    "jitter": "full",
    "rate": "60",
    "outage_min": "10",
    "seed": "7",
}
BOUNDS = {
    "price": (0, 10_000),
    "latency": (0.05, 120),
    "fails": (0, 100),
    "attempts": (1, 5),
    "base_s": (0, 60),
    "cap_s": (0, 60),
    "rate": (1, 300),
    "outage_min": (0, 40),
    "seed": (0, 1_000_000),
}
SWITCHES = ("budget", "breaker")
AskedChain: TypeAlias = tuple[Chain, float, float, int]


def _lived_through(chain: Chain, rate: float, outage_s: float, seed: int) -> FallbackResult:
    chains = [chain, *beside(chain)]
    return simulate(chains=chains, seed=seed, rate=rate, outage_s=outage_s)


SIMULATIONS: Simulations[AskedChain, FallbackResult] = Simulations(_lived_through)


def _asked(visit: DashboardRequest) -> dict[str, str]:
    """What the form says; before it was sent, two models and a breaker."""
    if not visit.request.query_params.keys() & FIRST.keys():
        return FIRST | {"budget": "", "breaker": "on"}
    given = {name: visit.asked(name) for name in FIRST if name[-1:].isdigit()}
    given |= {name: visit.asked(name) or FIRST[name] for name in FIRST if name not in given}
    return given | {name: visit.asked(name) for name in SWITCHES}


def _read(asked: dict[str, str]) -> AskedChain:
    """The chain that was asked for. ValueError or ContractViolation: it cannot be one."""
    models = tuple(_model(asked, n) for n in range(CHAIN_MAX) if asked[f"name{n}"])
    if not asked["name0"]:
        raise ValueError("the first model needs a name")
    if len({model.name for model in models}) < len(models):
        raise ValueError("two models have the same name")
    names = ("attempts", "base_s", "cap_s", "rate", "outage_min", "seed")
    read = {name: number_in(name, asked[name], BOUNDS[name]) for name in names}
    retry = Retry(
        attempts=int(read["attempts"]),
        base_s=read["base_s"],
        cap_s=read["cap_s"],
        jitter=asked["jitter"],
    )
    on = {name: asked[name] == "on" for name in SWITCHES}
    chain = Chain("yours", models, retry, **on)
    return chain, read["rate"], read["outage_min"] * 60, int(read["seed"])


def _model(asked: dict[str, str], number: int) -> Model:
    name = asked[f"name{number}"].strip()
    if len(name) > NAME_MAX or not name.isprintable():
        raise ValueError(f"model {number + 1}: choose a name of at most {NAME_MAX} characters")
    read = [
        number_in(what, asked[f"{what}{number}"], BOUNDS[what])
        for what in ("price", "latency", "fails")
    ]
    return Model(name, read[0], read[1], read[2] / 100)


async def fallback(visit: DashboardRequest) -> Response:
    """The form, and what becomes of the chain in it."""
    asked = _asked(visit)
    tried = await SIMULATIONS.tried(visit.access.who, lambda: _read(asked), code_of)
    return tried.page(visit, "fallback", asked=asked, numbers=range(CHAIN_MAX), bounds=BOUNDS)


def code_of(chain: Chain) -> str:
    """The chain as you would write it."""
    first, *others = (json.dumps(model.name, ensure_ascii=False) for model in chain.models)
    retry = chain.retry
    delays = f'base_s={retry.base_s:g}, cap_s={retry.cap_s:g}, jitter="{retry.jitter}"'
    used = ["Retry", *["RetryBudget"] * chain.budget, *["breaker"] * chain.breaker]
    parts = [
        "guard",
        "client.messages.create",
        f"retry=Retry(attempts={retry.attempts}, {delays})",
        *(['budget=RetryBudget("models")'] if chain.budget else []),
        *([f"breaker=breaker({first})"] if chain.breaker else []),
        *([f"fallback=[{', '.join(others)}]"] if others else []),
    ]
    question = '[{"role": "user", "content": "The capital of France?"}]'
    return "\n".join(
        [
            f"from effectonce import {', '.join(used)}",
            "from effectonce.llm import once_llm",
            "",
            "ask = once_llm(",
            *(f"    {part}," for part in parts),
            ")",
            f"message = ask(model={first}, max_tokens=1024, messages={question})",
        ]
    )


FALLBACK = (("/fallback", "fallback", fallback),)
