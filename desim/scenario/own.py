"""Names of desim's own algorithms and losses, for whoever only asks whether a name is one."""

METHODS = tuple(
    """fed-plt fed-pd fedlin fedavg scaffold tamuna led 5gcs dp-admm zcdp-nfl dp-nfl
    zcdp-subgradient p-admm admm dsgd sdm-dsgd functional-mechanism pflr pdfc adfc m-admm r-admm
    pr-admm pp-admm ipp-admm q-dpsgd-1 q-dpsgd-2 pvp dvp d-zoa or-zo zoo-admm
    gradient-descent fedasync fedbuff fedprox feddyn choco-sgd gossip muffliato decor ad-psgd
    gradient-tracking push-sum""".split()
)
LOSSES = ("logistic", "squared", "absolute", "huber", "hinge", "softmax", "mlp")
LAYERED = ("softmax", "mlp")  # of these, losses of scores for classes
RELATIONS = ("replace-one", "agent")  # for which sensitivities of all these methods are known
