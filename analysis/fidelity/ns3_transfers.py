"""Single messages over ns-3's TCP: the same sizes, latencies and rates as `transfers`.

    python3 -m venv NS && NS/bin/pip install ns3 && NS/bin/python analysis/fidelity/ns3_transfers.py

Two nodes, a point-to-point link, queues of 10,000 packets (more than any message has), buffers of
32 MB, segments of 1448 bytes.
ns-3 does not restart after idleness, so connections are new or busy; the next message of a busy one
leaves a latency after the last byte of the one before was read. Nothing of desim is needed here.
"""

import csv
import itertools
import json
import os
import signal
from pathlib import Path

from ns import ns

FILE = Path(__file__).parent / "measured" / "ns3.csv"
LATENCIES = [0.0005, 0.005, 0.025, 0.075, 0.15]
RATES = [1e6, 1e7, 1e8]
SIZES = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
CONGESTION = {"reno": "ns3::TcpLinuxReno", "newreno": "ns3::TcpNewReno", "cubic": "ns3::TcpCubic"}
PATIENCE = 12
QUEUE = 10_000
COLUMNS = "congestion state latency rate queue position size sent seconds".split()

CODE = """
namespace fidelity {
using namespace ns3;

struct Transfers {
  std::vector<uint32_t> sizes;
  double latency;
  bool fresh;
  Ptr<Node> sender;
  Address to;
  Ptr<Socket> out;
  std::vector<double> times;  // sent, read, sent, read, ...
  uint32_t position = 0, got = 0;

  void Send() { out->Send(Create<Packet>(sizes[position])); }

  void Connected(Ptr<Socket>) {
    if (!fresh) times.push_back(Simulator::Now().GetSeconds());
    Send();
  }

  void Begin() {
    if (out && !fresh) {
      times.push_back(Simulator::Now().GetSeconds());
      Send();
      return;
    }
    if (out) out->Close();
    out = Socket::CreateSocket(sender, TcpSocketFactory::GetTypeId());
    out->SetConnectCallback(MakeCallback(&Transfers::Connected, this),
                            MakeNullCallback<void, Ptr<Socket>>());
    out->Bind();
    if (fresh) times.push_back(Simulator::Now().GetSeconds());
    out->Connect(to);
  }

  void Read(Ptr<Socket> in) {
    while (Ptr<Packet> packet = in->Recv()) {
      if (packet->GetSize() == 0) break;
      got += packet->GetSize();
    }
    if (position < sizes.size() && got >= sizes[position]) {
      times.push_back(Simulator::Now().GetSeconds());
      got = 0;
      if (++position < sizes.size())
        Simulator::Schedule(Seconds(latency), &Transfers::Begin, this);
      else
        Simulator::Stop();
    }
  }

  void Accepted(Ptr<Socket> in, const Address&) {
    in->SetRecvCallback(MakeCallback(&Transfers::Read, this));
  }
};

std::vector<double> Play(std::string tcp, double latency, double rate,
                         std::vector<uint32_t> sizes, bool fresh) {
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName(tcp)));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 25));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 25));
  Config::SetDefault("ns3::TcpSocket::TcpNoDelay", BooleanValue(true));
  Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(Seconds(0.04)));
  NodeContainer nodes;
  nodes.Create(2);
  PointToPointHelper link;
  link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(rate))));
  link.SetChannelAttribute("Delay", TimeValue(Seconds(latency)));
  link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("QUEUEp"));
  NetDeviceContainer devices = link.Install(nodes);
  InternetStackHelper stack;
  stack.Install(nodes);
  Ipv4AddressHelper addresses;
  addresses.SetBase("10.0.0.0", "255.255.255.252");
  Ipv4InterfaceContainer ends = addresses.Assign(devices);
  TrafficControlHelper().Uninstall(devices);  // the device's queue alone
  Transfers all;
  all.sizes = sizes;
  all.latency = latency;
  all.fresh = fresh;
  all.sender = nodes.Get(0);
  all.to = InetSocketAddress(ends.GetAddress(1), 5000);
  Ptr<Socket> listener = Socket::CreateSocket(nodes.Get(1), TcpSocketFactory::GetTypeId());
  listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), 5000));
  listener->Listen();
  listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                              MakeCallback(&Transfers::Accepted, &all));
  Simulator::Schedule(Seconds(0.1), &Transfers::Begin, &all);
  Simulator::Stop(Seconds(600));
  Simulator::Run();
  Simulator::Destroy();
  return all.times;
}
}
""".replace("QUEUE", str(QUEUE))


def played(congestion, state, latency, rate, size):
    """Times sent and read, in turn, from a process of its own that has `PATIENCE` s; [] if not."""
    number = 1 if state == "new" else 3 if size > 100_000 else 5
    out, into = os.pipe()
    if not (child := os.fork()):
        signal.alarm(PATIENCE)
        sizes = ns.cppyy.gbl.std.vector["uint32_t"]([size] * number)
        times = ns.cppyy.gbl.fidelity.Play(
            CONGESTION[congestion], latency, rate, sizes, state == "new"
        )
        os.write(into, json.dumps(list(times)).encode())
        os._exit(0)
    os.close(into)
    with open(out) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text or "[]")


def main() -> None:
    """Play all, and write the table."""
    ns.cppyy.cppdef(CODE)
    warm = ns.cppyy.gbl.std.vector["uint32_t"]([1000])
    ns.cppyy.gbl.fidelity.Play(CONGESTION["reno"], 0.01, 1e7, warm, True)
    table, missing = [], []
    worlds = itertools.product(CONGESTION, ["new", "busy"], LATENCIES, RATES, SIZES)
    for world in worlds:
        congestion, state, latency, rate, size = world
        if size * 8 / rate > 12:
            continue
        if not (times := played(*world)):
            missing.append(world)
        for position, (sent, read) in enumerate(zip(times[::2], times[1::2], strict=False)):
            row = [congestion, state, latency, rate, QUEUE, position, size]
            table.append([*row, f"{sent - times[0]:.7g}", f"{read - sent:.7g}"])
        with open(FILE, "w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *table])
    print(f"{len(table)} messages; longer than {PATIENCE} s of work:", *missing, sep="\n")


if __name__ == "__main__":
    main()
