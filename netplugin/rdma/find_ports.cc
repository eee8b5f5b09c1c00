// Which RDMA ports of the host are offered to NCCL.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "netplugin/log.h"
#include "netplugin/rdma/port.h"

namespace weft::net::rdma {
namespace {

namespace fs = std::filesystem;

/// As sysfs has it, "4: ACTIVE".
std::string StateOf(const fs::path& port) {
  std::ifstream file(port / "state");
  std::string line;
  std::getline(file, line);
  return line.substr(0, 40);
}

int NumberOf(const fs::path& port) {
  const std::string text = port.filename();
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Numbers of the active ports of `device` that the filter lets through; says of the others why not.
std::vector<int> ActivePorts(const fs::path& device, const std::string& filter, Ports* ports) {
  std::vector<int> numbers;
  std::error_code error;
  for (const auto& port : fs::directory_iterator(device / "ports", error)) {
    const int number = NumberOf(port.path());
    if (number < 1 || number > 255) continue;
    const std::string state = StateOf(port.path());
    const std::string name = device.filename().string() + ":" + std::to_string(number);
    if (state.find("ACTIVE") == std::string::npos) {
      ports->passed_over.push_back(name + " (state \"" + state + "\")");
    } else if (!MatchesFilter(filter, device.filename().native(), number)) {
      ports->passed_over.push_back(name + " (excluded by NCCL_IB_HCA)");
      ports->excluded = true;
    } else {
      numbers.push_back(number);
    }
  }
  std::ranges::sort(numbers);
  return numbers;
}

/// Opens what can be opened; says of the others why not.
void OpenPorts(const std::vector<std::pair<std::string, std::vector<int>>>& wanted, const Verbs& verbs,
               const RdmaEnvironment& environment, const std::string& sysfs, Ports* ports) {
  const auto pass_over = [ports](const std::string& name, int number) {
    ports->passed_over.push_back(name + ":" + std::to_string(number) + " (" + ports->why + ")");
  };
  int count = 0;
  ibv_device** list = verbs.get_device_list(&count);
  for (const auto& [name, numbers] : wanted) {
    const auto found = std::find_if(list, list + count, [&](ibv_device* device) {
      return name == verbs.get_device_name(device);
    });
    for (const int number : numbers) {
      std::shared_ptr<Port> port;
      if (found == list + count) {
        ports->why = "libibverbs has no provider for " + name;
      } else {
        port = Port::Open(verbs, *found, number, environment, sysfs, &ports->why);
      }
      if (port) {
        ports->usable.push_back(std::move(port));
      } else {
        pass_over(name, number);
      }
    }
  }
  if (list) verbs.free_device_list(list);
}

}  // namespace

Ports FindPorts(const RdmaEnvironment& environment, const std::string& sysfs) {
  Ports ports;
  std::vector<std::pair<std::string, std::vector<int>>> wanted;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(sysfs, error)) {
    auto numbers = ActivePorts(device.path(), environment.devices, &ports);
    if (!numbers.empty()) wanted.emplace_back(device.path().filename(), std::move(numbers));
  }
  if (wanted.empty()) {
    ports.why = "no active RDMA port" +
                (environment.devices.empty() ? "" : " that " + Setting("NCCL_IB_HCA", environment.devices) + " lets through");
    std::ranges::sort(ports.passed_over);
    return ports;
  }
  ports.present = true;
  std::ranges::sort(wanted);  // the same order on every start
  const Verbs* verbs = LoadVerbs(&ports.why);
  if (verbs) OpenPorts(wanted, *verbs, environment, sysfs, &ports);
  std::ranges::sort(ports.passed_over);
  return ports;
}

}  // namespace weft::net::rdma
