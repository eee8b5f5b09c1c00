// One valid topology file of each kind that formats/ reads, small and made up, for tests of the importers.
#pragma once

namespace weft::formats::testing {

inline constexpr const char* kNcclTopology = R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
    <pci busid="0000:11:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:12:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:ff:00.0" count="18" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:13:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.0" guid="0x1" maxconn="131072" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" arch="x86_64">
    <pci busid="0000:22:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="8">
      <gpu dev="1" sm="90" rank="1" gdr="1">
        <nvlink target="0000:ff:00.0" count="18" tclass="0x068000"/>
      </gpu>
    </pci>
  </cpu>
</system>
)";

inline constexpr const char* kNcclMesh = R"(<system version="1"><cpu numaid="0">
<pci busid="0000:06:00.0" class="0x030200" link_speed="8 GT/s" link_width="16"><gpu dev="0" sm="70">
<nvlink target="0000:07:00.0" count="2" tclass="0x030200"/></gpu></pci>
<pci busid="0000:07:00.0" class="0x030200" link_speed="8 GT/s" link_width="16"><gpu dev="1" sm="70">
<nvlink target="0000:06:00.0" count="2" tclass="0x030200"/></gpu></pci>
</cpu></system>
)";

inline constexpr const char* kLldpOne = R"({"lldp": {"interface": {"eth0": {"via": "LLDP", "rid": "1", "age": "0 day, 00:00:12",
  "chassis": {"leaf0": {"id": {"type": "mac", "value": "66:07:d4:75:6d:bb"}, "descr": "switch"}},
  "port": {"id": {"type": "ifname", "value": "Ethernet1"}, "descr": "swp1", "ttl": "120"}}}}}
)";

inline constexpr const char* kLldpSeveral = R"({"lldp": {"interface": [
  {"eth1": {"chassis": {"id": {"type": "mac", "value": "66:07:d4:75:6d:bc"}},
            "port": {"id": {"type": "ifname", "value": "Ethernet7"}, "ttl": "120"}}},
  {"eth0": {"chassis": {"leaf0": {"id": {"type": "mac", "value": "66:07:d4:75:6d:bb"}}},
            "port": {"id": {"type": "ifname", "value": "Ethernet1"}, "descr": "swp1"}}}]}}
)";

inline constexpr const char* kSlurmTree = R"(# two racks and a spine
SwitchName=leaf1 Nodes=n[1-2] LinkSpeed=400
switchname=leaf2 nodes=n[03-04,7],login
SwitchName=spine \
  Switches=leaf[1-2]
)";

inline constexpr const char* kSlurmBlocks = R"(BlockName=b1 Nodes=n[1-18]
BlockName=b2 Nodes=n[19-36]
BlockSizes=18,36
)";

}  // namespace weft::formats::testing
