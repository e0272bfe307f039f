"""The door for torch: a module as a model of a scenario, and a run's model in a module.

See analysis/docs/howto/torch.md. It needs torch: the extra desim[torch].
"""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.errors import InputError, refusal

try:
    import torch
    from torch import nn

    from desim.problem.models.torch_module import TorchModel
    from desim.problem.models.torch_parts import filled, fixed_sha256
except ModuleNotFoundError as lacking:
    if lacking.name != "torch":
        raise
    text = "desim.torch: found no torch here; allowed: pip install 'desim[torch]'"
    raise InputError(text) from None

__all__ = ["TorchModel", "load"]


def load(
    run: Any,
    module: nn.Module,
    round: int = -1,
    agent: int | None = None,
    checkpoint: tuple[str, float] | None = None,
) -> nn.Module:
    """Set the parameters of a module that train to those of a run's model; return the module.

    round: 0 is the start, -1 the last one; agent: its own model, which a run keeps with
    observe.iterates; by default the coordinator's, or the mean of the agents'; checkpoint: a metric
    and its target, of those that the run has met. InputError where the run has no such model, or
    the module another number of parameters.
    """
    if not hasattr(run, "iterates"):
        raise InputError(f"run: {refusal(run, 'what desim.open or desim.run returns')}")
    if checkpoint is not None:
        met = {(one.metric, one.target): one.model for one in run.checkpoints}
        if checkpoint not in met:
            allowed = ", ".join(map(str, met)) or "none, as the run has met no target"
            raise InputError(f"checkpoint: {refusal(checkpoint, allowed)}")
        return _filled(run, module, met[checkpoint])
    if agent is None and run.model is not None:
        return _filled(run, module, np.array(_at(run.model, round), float))
    kept = run.iterates
    if kept is None:
        cure = "observe: {iterates: true} keeps the models of agents"
        raise InputError(f"{run}: found no such model; allowed: the coordinator's; {cure}")
    if agent is None:
        return _filled(run, module, np.asarray(_at(kept, round), float).mean(0))
    if not 0 <= agent < kept.shape[1]:
        raise InputError(f"agent: {refusal(agent, f'0 to {kept.shape[1] - 1}')}")
    return _filled(run, module, np.array(_at(kept, round)[agent], float))


def _filled(run: Any, module: nn.Module, x: Array) -> nn.Module:
    """The module with the parameters x; InputError unless what does not train is as in the run."""
    stored = run.manifest.get("model", {}).get("fixed_sha256", "")
    kind = getattr(torch, run.written.get("problem", {}).get("precision", "float32"))
    if stored and fixed_sha256(module, kind) != stored:
        text = "its buffers or its parameters that do not train are not those of the run"
        raise InputError(f"module: {text}; allowed: the module as the run's model made it")
    return filled(module, x)


def _at(models: Any, round: int) -> Any:
    """The models of a round, -1 being the last one; InputError where there is none."""
    if not -len(models) <= round < len(models):
        raise InputError(f"round: {refusal(round, f'0 to {len(models) - 1}, or -1, the last')}")
    return models[round]
