#include "testbed/fabric_state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace weft::testbed {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

Result<std::string> ReadFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Fail(ErrnoError(fmt::format("open \"{}\"", path), errno));
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(fd.get(), buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(got));
  if (got < 0) return Fail(ErrnoError(fmt::format("read \"{}\"", path), errno));
  return text;
}

Result<std::optional<uint64_t>> StartTicksOf(pid_t pid) {
  auto text = ReadFile(fmt::format("/proc/{}/stat", pid));
  if (!text) return std::nullopt;  // gone
  return ParseProcStat(*text);
}

}  // namespace

Result<std::optional<uint64_t>> ParseProcStat(std::string_view text) {
  // "pid (name) state ppid ...": the name may hold anything, so count from its last parenthesis.
  const size_t name_end = text.rfind(')');
  const auto bad = [] {
    return Fail(Code::kInvalidArgument, "process status: expected \"pid (name) state\" and at least 22 fields");
  };
  if (name_end == std::string_view::npos || name_end + 2 >= text.size()) return bad();
  std::string_view rest = text.substr(name_end + 2);
  if (rest.front() == 'Z' || rest.front() == 'X') return std::nullopt;
  for (int field = 3; field < 22; ++field) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) return bad();
    rest.remove_prefix(space + 1);
  }
  uint64_t ticks = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), ticks).ec != std::errc()) return bad();
  return ticks;
}

Result<Owner> Self() {
  WEFT_ASSIGN_OR_RETURN(const auto ticks, StartTicksOf(::getpid()));
  if (!ticks) return Fail(Code::kFailedPrecondition, "read \"/proc/self/stat\": is /proc mounted?");
  return Owner{::getpid(), *ticks};
}

bool IsAlive(const Owner& owner) {
  const auto ticks = StartTicksOf(owner.pid);
  return ticks && *ticks && **ticks == owner.start_ticks;
}

std::string FormatState(const FabricState& state) {
  const FabricOptions& options = state.options;
  Json json{{"version", kVersion},
            {"id", options.id},
            {"slot", state.slot},
            {"leaves", options.leaves},
            {"spines", options.spines},
            {"hosts_per_leaf", options.hosts_per_leaf},
            {"link_bps", options.link_rate.value()},
            {"owner", nullptr}};
  if (options.host_link_rate) json["host_link_bps"] = options.host_link_rate->value();
  if (options.spine_link_rate) json["spine_link_bps"] = options.spine_link_rate->value();
  if (options.hash_seed) json["hash_seed"] = *options.hash_seed;
  if (options.grain) json["grain_s"] = options.grain->count();
  if (options.fair) json["fair"] = true;
  if (options.queue) json["queue_bytes"] = options.queue->count();
  for (const FabricClass& one : options.classes) json["classes"].push_back({one.dscp, one.share});
  if (state.owner) json["owner"] = {{"pid", state.owner->pid}, {"start_ticks", state.owner->start_ticks}};
  return json.dump(2) + "\n";
}

Result<FabricState> ParseState(std::string_view path, std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (const int version = json.at("version").get<int>(); version != kVersion) {
      return Fail(Code::kInvalidArgument, fmt::format("fabric state \"{}\": version {}, expected {}", path, version,
                                                      kVersion));
    }
    FabricState state;
    state.options.id = json.at("id").get<std::string>();
    state.slot = json.at("slot").get<int>();
    state.options.leaves = json.at("leaves").get<int>();
    state.options.spines = json.at("spines").get<int>();
    state.options.hosts_per_leaf = json.at("hosts_per_leaf").get<int>();
    state.options.link_rate = BitsPerSecond(json.at("link_bps").get<double>());
    if (json.contains("host_link_bps")) {
      state.options.host_link_rate = BitsPerSecond(json.at("host_link_bps").get<double>());
    }
    if (json.contains("spine_link_bps")) {
      state.options.spine_link_rate = BitsPerSecond(json.at("spine_link_bps").get<double>());
    }
    if (json.contains("hash_seed")) state.options.hash_seed = json.at("hash_seed").get<uint32_t>();
    if (json.contains("grain_s")) state.options.grain = Seconds(json.at("grain_s").get<double>());
    state.options.fair = json.value("fair", false);
    if (json.contains("queue_bytes")) state.options.queue = Bytes(json.at("queue_bytes").get<int64_t>());
    if (json.contains("classes")) {
      state.options.classes.clear();
      for (const Json& one : json.at("classes")) state.options.classes.push_back({one.at(0).get<int>(), one.at(1).get<int>()});
    }
    if (const Json& owner = json.at("owner"); !owner.is_null()) {
      state.owner = Owner{owner.at("pid").get<pid_t>(), owner.at("start_ticks").get<uint64_t>()};
    }
    // The names that a teardown will delete follow from these numbers: they must be ones that we would have written.
    auto plan = FabricPlan::Make(state.options, state.slot);
    if (!plan) return Fail(plan.error().WithContext(fmt::format("fabric state \"{}\"", path)));
    return state;
  } catch (const Json::exception& error) {
    return Fail(Code::kInvalidArgument, fmt::format("fabric state \"{}\": {}", path, error.what()));
  }
}

std::string StateStore::PathOf(std::string_view id) const { return fmt::format("{}/{}.json", directory_, id); }

Result<UniqueFd> StateStore::Lock() const {
  if (::mkdir(directory_.c_str(), 0755) != 0 && errno != EEXIST) {
    return Fail(ErrnoError(fmt::format("make \"{}\"", directory_), errno));
  }
  const std::string path = directory_ + "/lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return Fail(ErrnoError(fmt::format("open \"{}\"", path), errno));
  while (::flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Fail(ErrnoError(fmt::format("lock \"{}\"", path), errno));
  }
  return fd;
}

Status StateStore::Write(const FabricState& state) const {
  const std::string path = PathOf(state.options.id);
  const std::string fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::trunc);
    file << FormatState(state);
    file.close();
    if (!file) return Fail(Code::kFailedPrecondition, fmt::format("write \"{}\"", fresh));
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return Fail(ErrnoError(fmt::format("write \"{}\"", path), errno));
  return Ok();
}

Result<FabricState> StateStore::Read(std::string_view id) const {
  WEFT_RETURN_IF_ERROR(CheckFabricId(id));
  const std::string path = PathOf(id);
  auto text = ReadFile(path);
  if (!text) {
    if (text.error().code() != Code::kNotFound) return Fail(text.error());
    return Fail(Code::kNotFound, fmt::format("no fabric \"{}\" (no file \"{}\")", id, path));
  }
  return ParseState(path, *text);
}

Status StateStore::Erase(std::string_view id) const {
  if (const std::string path = PathOf(id); ::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Fail(ErrnoError(fmt::format("remove \"{}\"", path), errno));
  }
  return Ok();
}

Result<std::vector<FabricState>> StateStore::List(std::vector<std::string>* unreadable) const {
  std::vector<FabricState> states;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".json") continue;
    auto state = Read(it->path().stem().string());
    if (state) {
      states.push_back(std::move(*state));
    } else if (state.error().code() != Code::kNotFound && unreadable != nullptr) {  // removed meanwhile: no fault
      unreadable->push_back(state.error().message());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return Fail(ErrnoError(fmt::format("list \"{}\"", directory_), error.value()));
  }
  std::sort(states.begin(), states.end(),
            [](const FabricState& x, const FabricState& y) { return x.options.id < y.options.id; });
  return states;
}

}  // namespace weft::testbed
