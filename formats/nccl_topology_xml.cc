#include "formats/nccl_topology_xml.h"

#include <fmt/format.h>
#include <tinyxml2.h>

#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "formats/one_line.h"

namespace weft::formats {
namespace {

using planner::LinkKind;
using planner::NodeKind;
using tinyxml2::XMLElement;

/// Gigabytes per second of one NVLink lane by compute capability. Source: NVIDIA data sheets of P100, V100, A100, H100, B200.
double NvlinkLane(int64_t sm) { return sm >= 100 ? 50 : sm >= 70 ? 25 : 20; }

/// The bus between sockets, where the file says only that there is one: Source: NCCL's own table of processor links.
constexpr double kCpuFabricGigabytes = 32;

class Reader {
 public:
  Reader(std::string_view source, std::string_view host) : source_(source), host_(host) {}

  Status Read(const tinyxml2::XMLDocument& document) {
    const XMLElement* system = document.RootElement();
    if (system == nullptr || std::string_view(system->Name()) != "system") {
      return At(system == nullptr ? 1 : system->GetLineNum(), "no \"system\" element at the top");
    }
    for (const XMLElement* e = system->FirstChildElement("cpu"); e != nullptr; e = e->NextSiblingElement("cpu")) {
      WEFT_RETURN_IF_ERROR(ReadCpu(*e));
    }
    if (found_.server.gpus.empty() && found_.server.nics.empty()) {
      return At(system->GetLineNum(), "a system without GPU and without net");
    }
    return JoinNvlinks();
  }

  NcclTopology Take() { return std::move(found_); }

 private:
  /// An NVLink as written; its target may come later in the file.
  struct Nvlink {
    int line;
    NodeId gpu;
    std::string target, tclass;
    double gigabytes;
  };

  tl::unexpected<Error> At(int line, const std::string& what) const {
    return Fail(Code::kInvalidArgument, fmt::format("{}: line {}: {}", source_, line, what));
  }

  Result<std::string> Text(const XMLElement& element, const char* key) const {
    const char* value = element.Attribute(key);
    if (value == nullptr) return At(element.GetLineNum(), fmt::format("{} without {}", OneLine(element.Name(), 40), key));
    return OneLine(value, 80);
  }

  Result<int64_t> Integer(const XMLElement& element, const char* key, int64_t least, int64_t most) const {
    WEFT_ASSIGN_OR_RETURN(const std::string text, Text(element, key));
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
      return At(element.FindAttribute(key)->GetLineNum(),
                fmt::format("{} {} \"{}\", expected an integer from {} to {}", element.Name(), key, text, least, most));
    }
    return value;
  }

  NodeId Add(std::string_view name, NodeKind kind) { return found_.topology.AddNode(fmt::format("{}/{}", host_, name), kind); }

  /// A node of its own: two devices of one name could not be told apart.
  Result<NodeId> New(const XMLElement& element, const std::string& name, NodeKind kind) {
    if (name.empty() || name == "nvswitch" || !names_.insert(name).second) {
      return At(element.GetLineNum(), fmt::format("{} \"{}\": the name is there already", OneLine(element.Name(), 40), name));
    }
    return Add(name, kind);
  }

  Status ReadCpu(const XMLElement& element) {
    WEFT_ASSIGN_OR_RETURN(const int64_t numa, Integer(element, "numaid", -1, 65535));
    WEFT_ASSIGN_OR_RETURN(const NodeId cpu, New(element, fmt::format("cpu{}", numa), NodeKind::kCpu));
    for (const NodeId other : cpus_) {
      found_.topology.AddCable(cpu, other, GigabytesPerSecond(kCpuFabricGigabytes), LinkKind::kCpuFabric);
    }
    cpus_.push_back(cpu);
    return ReadChildren(element, cpu);
  }

  Status ReadChildren(const XMLElement& element, NodeId parent) {
    for (const XMLElement* e = element.FirstChildElement("pci"); e != nullptr; e = e->NextSiblingElement("pci")) {
      WEFT_RETURN_IF_ERROR(ReadPci(*e, parent));
    }
    return Ok();
  }

  /// A PCI device is a GPU, a NIC, or a bridge with more below it.
  Status ReadPci(const XMLElement& element, NodeId parent) {
    WEFT_ASSIGN_OR_RETURN(const std::string bus, Text(element, "busid"));
    if (!buses_.insert(bus).second) return At(element.GetLineNum(), fmt::format("pci busid \"{}\" is there twice", bus));
    WEFT_ASSIGN_OR_RETURN(const BitsPerSecond rate, PcieRate(element));
    if (const XMLElement* gpu = element.FirstChildElement("gpu")) return ReadGpu(*gpu, bus, parent, rate);
    if (const XMLElement* nic = element.FirstChildElement("nic")) {
      for (const XMLElement* e = nic->FirstChildElement("net"); e != nullptr; e = e->NextSiblingElement("net")) {
        WEFT_RETURN_IF_ERROR(ReadNet(*e, parent, rate));
      }
      return Ok();
    }
    WEFT_ASSIGN_OR_RETURN(const NodeId bridge, New(element, bus, NodeKind::kPcieSwitch));
    found_.topology.AddCable(bridge, parent, rate, LinkKind::kPcie);
    return ReadChildren(element, bridge);
  }

  /// "32.0 GT/s PCIe" times link_width; a file without speed, as of virtual machines, counts as PCIe 3.0 x16.
  Result<BitsPerSecond> PcieRate(const XMLElement& element) const {
    if (element.Attribute("link_speed") == nullptr || *element.Attribute("link_speed") == '\0') {
      return GigabitsPerSecond(8.0 * 16 * 128 / 130);
    }
    WEFT_ASSIGN_OR_RETURN(const std::string text, Text(element, "link_speed"));
    double speed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), speed);
    if (error != std::errc() || !std::string_view(end, text.data() + text.size()).starts_with(" GT/s") ||
        !(speed >= 1 && speed <= 1000)) {
      return At(element.FindAttribute("link_speed")->GetLineNum(),
                fmt::format("pci link_speed \"{}\", expected a number from 1 to 1000 and \" GT/s\"", text));
    }
    int64_t width = 16;
    if (element.Attribute("link_width") != nullptr) {
      WEFT_ASSIGN_OR_RETURN(width, Integer(element, "link_width", 0, 64));
    }
    // 2.5 and 5 GT/s lose a fifth to their code, later ones 2 in 130. Width 0 is written for devices that have none.
    const double code = speed <= 5 ? 0.8 : 128.0 / 130;
    return GigabitsPerSecond(speed * static_cast<double>(width == 0 ? 16 : width) * code);
  }

  Status ReadGpu(const XMLElement& element, const std::string& bus, NodeId parent, BitsPerSecond rate) {
    WEFT_ASSIGN_OR_RETURN(const int64_t dev, Integer(element, "dev", 0, 4095));
    WEFT_ASSIGN_OR_RETURN(const NodeId gpu, New(element, fmt::format("gpu{}", dev), NodeKind::kGpu));
    found_.topology.AddCable(gpu, parent, rate, LinkKind::kPcie);
    found_.server.gpus.push_back(gpu);
    gpu_at_.emplace(bus, gpu);
    int64_t sm = 70;
    if (element.Attribute("sm") != nullptr) {
      WEFT_ASSIGN_OR_RETURN(sm, Integer(element, "sm", 10, 999));
    }
    for (const XMLElement* e = element.FirstChildElement("nvlink"); e != nullptr; e = e->NextSiblingElement("nvlink")) {
      WEFT_ASSIGN_OR_RETURN(const std::string target, Text(*e, "target"));
      WEFT_ASSIGN_OR_RETURN(const int64_t count, Integer(*e, "count", 1, 64));
      WEFT_ASSIGN_OR_RETURN(const std::string tclass, Text(*e, "tclass"));
      nvlinks_.push_back({e->GetLineNum(), gpu, target, tclass, NvlinkLane(sm) * static_cast<double>(count)});
    }
    return Ok();
  }

  Status ReadNet(const XMLElement& element, NodeId parent, BitsPerSecond rate) {
    WEFT_ASSIGN_OR_RETURN(const std::string name, Text(element, "name"));
    WEFT_ASSIGN_OR_RETURN(const int64_t megabits, Integer(element, "speed", 1, 100'000'000));
    // What the port gives or its PCIe link carries, whichever is less.
    WEFT_ASSIGN_OR_RETURN(const NodeId nic, New(element, name, NodeKind::kNic));
    found_.topology.AddCable(nic, parent, std::min(rate, MegabitsPerSecond(static_cast<double>(megabits))), LinkKind::kPcie);
    found_.server.nics.push_back(nic);
    return Ok();
  }

  /// Class 0x0680 is an NVSwitch, 0x03 another GPU, anything else (a processor) carries no traffic between GPUs.
  Status JoinNvlinks() {
    for (const Nvlink& link : nvlinks_) {
      if (link.tclass.starts_with("0x0680")) {
        found_.topology.AddCable(link.gpu, Add("nvswitch", NodeKind::kNvSwitch), GigabytesPerSecond(link.gigabytes),
                                 LinkKind::kNvlink);
      } else if (link.tclass.starts_with("0x03")) {
        const auto peer = gpu_at_.find(link.target);
        if (peer == gpu_at_.end()) return At(link.line, fmt::format("nvlink target \"{}\" is no GPU of this file", link.target));
        if (peer->second == link.gpu) return At(link.line, fmt::format("nvlink target \"{}\" is the GPU itself", link.target));
        found_.topology.AddLink(link.gpu, peer->second, GigabytesPerSecond(link.gigabytes), LinkKind::kNvlink);
      }
    }
    return Ok();
  }

  std::string_view source_, host_;
  NcclTopology found_;
  std::set<std::string> names_, buses_;
  std::map<std::string, NodeId> gpu_at_;
  std::vector<NodeId> cpus_;
  std::vector<Nvlink> nvlinks_;
};

}  // namespace

Result<NcclTopology> ParseNcclTopologyXml(std::string_view text, std::string_view source, std::string_view host) {
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: byte {} is zero, expected text", source, zero));
  }
  tinyxml2::XMLDocument document;
  if (document.Parse(text.data(), text.size()) != tinyxml2::XML_SUCCESS) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: line {}: not XML: {}", source, document.ErrorLineNum(),
                                                    OneLine(document.ErrorName(), 60)));
  }
  Reader reader(source, host);
  WEFT_RETURN_IF_ERROR(reader.Read(document));
  return reader.Take();
}

}  // namespace weft::formats
