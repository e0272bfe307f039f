"""What `desim list traces` says: files of measurements that are read, and known sets of them."""

FORMATS = {  # what a file is, and what of it which key takes
    "table": (
        "csv or npz: times in s, and a column or an array for each device",
        "network.link.bandwidth: rates over time, also of uplink and downlink alone",
        "compute.speed: speeds over time, with order: time",
        "churn.trace: 1 (up) and 0 (down) over time",
    ),
    "values": (
        "csv or npz: numbers without times, a row or column for each device",
        "compute.speed: speeds, durations of a gradient, or scores",
    ),
    "matrix": (
        "npz, or csv without a header: sites x sites",
        "network.latency_matrix: round trips, or one way",
    ),
    "contacts": (
        "csv or npz: agent, peer, begin and end in s",
        "network.topology.contacts: which links there are when",
    ),
    "rounds": (
        "csv or npz: who takes part in which round",
        "participation.trace: the same",
    ),
    "FedScale": (
        "two pickles, of which nothing is run",
        "compute.speed: client_device_capacity, ms for a row, of which a gradient takes three",
        "network.link.bandwidth: client_device_capacity, kbit/s of the same client",
        "churn.trace: client_behave_trace, when clients are active, again after finish_time",
    ),
    "Mahimahi": (
        "text: a time stamp in ms a line, at which 1500 bytes may leave; it repeats",
        "network.uplink.bandwidth: the file .up",
        "network.downlink.bandwidth: the file .down",
    ),
    "NDT": (
        "csv: tests of M-Lab, with the columns of BigQuery, one for each agent",
        "network.link.bandwidth: a.MeanThroughputMbps",
        "network.link.latency: half of a.MinRTT, in ms",
        "network.link.loss: the mean of a.LossRate, one for all links",
    ),
}
KNOWN = {  # what it is, where it is, and its licence as it states it
    "FedScale data": (  # desim brings and fetches none of these
        "speeds and links of 500,000 devices, presence of 107,749 (Lai et al., 2022)",
        "github.com/SymbioticLab/FedScale, in benchmark/dataset/data/device_info",
        "Apache-2.0",
    ),
    "Mahimahi data": (
        "AT&T, T-Mobile and Verizon on the road (Winstein et al., 2013), Orange 4G (2022)",
        "github.com/ravinet/mahimahi, in traces",
        "GPL-3 or later, of the repository",
    ),
    "NDT data": (
        "speed tests from everywhere since 2009, with date and place",
        "measurementlab.net, in BigQuery measurement-lab.ndt.unified_downloads and _uploads",
        "CC0",
    ),
    "FLASH data": (
        "19 links, times of layers and scores of phones (Yang et al., 2021)",
        "github.com/PKU-Chengxu/FLASH, in models",
        "BSD-2-Clause; the scores are of ai-benchmark.com, which states none",
    ),
    "HSDPA data": (
        "144 traces of 3G on the way through Oslo (Riiser et al., 2013)",
        "github.com/confiwent/Real-world-bandwidth-traces, in traces_3gp",
        "MIT for the collection; the original is free for research",
    ),
    "latency data": (
        "round trips of 490 sites of PlanetLab and of 99 devices in Seattle, over time",
        "github.com/uofa-rzhu3/NetLatency-Data",
        "MIT",
    ),
}


def traces() -> list[tuple[str, str]]:
    """Files that keys take as they are, and sets of them that others publish."""
    return [(name, "\n".join(facts)) for name, facts in (FORMATS | KNOWN).items()]
