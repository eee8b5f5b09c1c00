// Which RDMA ports of the host are offered to NCCL.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "netplugin/rdma/port.h"

namespace weft::net::rdma {
namespace {

namespace fs = std::filesystem;

bool IsActive(const fs::path& port) {
  std::ifstream file(port / "state");
  std::string line;
  return std::getline(file, line) && line.find("ACTIVE") != std::string::npos;
}

int NumberOf(const fs::path& port) {
  const std::string text = port.filename();
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Numbers of the active ports of `device` that the filter lets through.
std::vector<int> ActivePorts(const fs::path& device, const std::string& filter) {
  std::vector<int> numbers;
  std::error_code error;
  for (const auto& port : fs::directory_iterator(device / "ports", error)) {
    const int number = NumberOf(port.path());
    if (number >= 1 && number <= 255 && IsActive(port.path()) &&
        MatchesFilter(filter, device.filename().native(), number)) {
      numbers.push_back(number);
    }
  }
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace

Ports FindPorts(const RdmaEnvironment& environment, const std::string& sysfs) {
  Ports ports;
  std::vector<std::pair<std::string, std::vector<int>>> wanted;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(sysfs, error)) {
    auto numbers = ActivePorts(device.path(), environment.devices);
    if (!numbers.empty()) wanted.emplace_back(device.path().filename(), std::move(numbers));
  }
  if (wanted.empty()) {
    ports.why = "no active RDMA port" + (environment.devices.empty() ? "" : " that NCCL_IB_HCA=" + environment.devices +
                                                                               " lets through");
    return ports;
  }
  ports.present = true;
  std::ranges::sort(wanted);  // the same order on every start
  const Verbs* verbs = LoadVerbs(&ports.why);
  if (!verbs) return ports;
  int count = 0;
  ibv_device** list = verbs->get_device_list(&count);
  for (const auto& [name, numbers] : wanted) {
    const auto found = std::find_if(list, list + count, [&](ibv_device* device) {
      return name == verbs->get_device_name(device);
    });
    if (found == list + count) {
      ports.why = "libibverbs has no provider for " + name;
      continue;
    }
    for (const int number : numbers) {
      auto port = Port::Open(*verbs, *found, number, environment, sysfs, &ports.why);
      if (port) ports.usable.push_back(std::move(port));
    }
  }
  if (list) verbs->free_device_list(list);
  return ports;
}

}  // namespace weft::net::rdma
