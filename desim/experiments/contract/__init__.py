"""What desim demands of every algorithm, loss and model, checked on those of a plug-in.

    from desim.experiments import contract
    for finding in contract.algorithm("my-method", overrides={"algorithm.rho": 0.5}):
        assert finding.kept, finding

The engines, the ledger and `desim resume` rely on these laws; desim's own tests hold its own
methods to them. A law that is kept on a small problem may still be broken on another one.
"""

from desim.experiments.contract.algorithm_laws import algorithm
from desim.experiments.contract.loss_laws import loss
from desim.experiments.contract.model_laws import model
from desim.experiments.contract.stage import Finding

__all__ = ["Finding", "algorithm", "loss", "model"]
