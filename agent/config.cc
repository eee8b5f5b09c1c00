#include "agent/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "agent/exporter.h"
#include "common/parse_units.h"

namespace weft::agent {
namespace {

using Setter = std::function<Status(const YAML::Node&)>;

Result<std::string> Text(const YAML::Node& node) {
  if (!node.IsScalar() || node.Scalar().empty()) return Fail(Code::kInvalidArgument, "expected a text");
  return node.Scalar();
}

Setter SetText(std::string* to) {
  return [to](const YAML::Node& node) -> Status {
    WEFT_ASSIGN_OR_RETURN(*to, Text(node));
    return Ok();
  };
}
Setter SetDuration(Seconds* to) {
  return [to](const YAML::Node& node) -> Status {
    WEFT_ASSIGN_OR_RETURN(const std::string text, Text(node));
    WEFT_ASSIGN_OR_RETURN(*to, ParseDuration(text));
    return Ok();
  };
}
Setter SetInteger(int* to) {
  return [to](const YAML::Node& node) -> Status {
    if (!node.IsScalar() || !YAML::convert<int>::decode(node, *to)) {
      return Fail(Code::kInvalidArgument, fmt::format("\"{}\", expected an integer", node.IsScalar() ? node.Scalar() : ""));
    }
    return Ok();
  };
}
Setter SetList(std::vector<std::string>* to) {
  return [to](const YAML::Node& node) -> Status {
    if (!node.IsSequence()) return Fail(Code::kInvalidArgument, "expected a list");
    to->clear();
    for (const YAML::Node& item : node) {
      WEFT_ASSIGN_OR_RETURN(std::string text, Text(item));
      to->push_back(std::move(text));
    }
    return Ok();
  };
}

Status LoadMap(const YAML::Node& map, const std::string& path, const std::map<std::string, Setter>& setters) {
  if (!map.IsMap()) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: line {}: expected keys and values", path, map.Mark().line + 1));
  }
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const std::string where = fmt::format("{}: line {}: key \"{}\"", path, entry.first.Mark().line + 1, key);
    const auto setter = setters.find(key);
    if (setter == setters.end()) return Fail(Code::kInvalidArgument, where + " is unknown");
    if (!seen.insert(key).second) return Fail(Code::kInvalidArgument, where + " is there twice");
    if (const Status status = setter->second(entry.second); !status) {
      return Fail(status.error().WithContext(where));
    }
  }
  return Ok();
}

Status Load(const YAML::Node& root, const std::string& path, AgentConfig* config) {
  const auto version = [](const YAML::Node& node) -> Status {
    if (node.IsScalar() && node.Scalar() == "1") return Ok();
    return Fail(Code::kInvalidArgument, fmt::format("\"{}\", expected 1", node.IsScalar() ? node.Scalar() : ""));
  };
  const auto one_of = [](const char* no, const char* yes, bool* flag) {
    return [=](const YAML::Node& node) -> Status {
      const std::string word = node.IsScalar() ? node.Scalar() : "";
      if (word != no && word != yes) return Fail(Code::kInvalidArgument, fmt::format("\"{}\", expected {} or {}", word, no, yes));
      *flag = word == yes;
      return Ok();
    };
  };
  const auto tls = [&](const YAML::Node& node) {
    return LoadMap(node, path, {{"certificate", SetText(&config->tls_certificate)},
                                {"key", SetText(&config->tls_key)},
                                {"authority", SetText(&config->tls_authority)},
                                {"revoked", SetText(&config->tls_revoked)},
                                {"viewer_tokens", SetText(&config->viewer_tokens)}});
  };
  const auto quotas = [&](const YAML::Node& node) {
    return LoadMap(node, path, {{"segments", SetInteger(&config->quotas.segments)},
                                {"memory_mib", SetInteger(&config->quotas.memory_mib)},
                                {"flows", SetInteger(&config->quotas.flows)},
                                {"destinations", SetInteger(&config->quotas.destinations)}});
  };
  WEFT_RETURN_IF_ERROR(LoadMap(root, path, {{"version", version},
                                            {"host", SetText(&config->host)},
                                            {"run_dir", SetText(&config->run_dir)},
                                            {"controller", SetText(&config->controller)},
                                            {"http", SetText(&config->http)},
                                            {"interfaces", SetList(&config->interfaces)},
                                            {"sample_interval", SetDuration(&config->sample_interval)},
                                            {"report_interval", SetDuration(&config->report_interval)},
                                            {"probe_candidates", SetInteger(&config->probe_candidates)},
                                            {"reprobe_interval", SetDuration(&config->reprobe_interval)},
                                            {"qos", one_of("report", "apply", &config->qos_apply)},
                                            {"silent_lanes", one_of("wait", "move", &config->move_silent_lanes)},
                                            {"quotas", quotas},
                                            {"log_level", SetText(&config->log_level)},
                                            {"tls", tls}}));
  if (!root["version"]) return Fail(Code::kInvalidArgument, fmt::format("{}: key \"version\" is missing", path));
  return Ok();
}

}  // namespace

Status LoadConfigText(const std::string& text, const std::string& path, AgentConfig* config) {
  try {
    return Load(YAML::Load(text), path, config);
  } catch (const YAML::Exception& e) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: line {}: {}", path, e.mark.line + 1, e.msg));
  }
}

Status LoadConfigFile(const std::string& path, AgentConfig* config) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  std::string text;
  char piece[4096];
  for (size_t got = 0; file && (got = std::fread(piece, 1, sizeof piece, file.get())) > 0;) text.append(piece, got);
  if (!file || std::ferror(file.get()) != 0) {
    const int cause = errno;
    return Fail(Code::kNotFound, ErrnoError(fmt::format("read configuration \"{}\"", path), cause).message());
  }
  return LoadConfigText(text, path, config);
}

Status CheckConfig(const AgentConfig& config) {
  const auto refuse = [](const std::string& text) { return Fail(Code::kInvalidArgument, text); };
  if (config.host.empty()) return refuse("host is not set, expected this host's name in the cluster");
  if (config.run_dir.empty()) return refuse("run_dir is not set, expected a directory");
  if (config.controller.empty()) return refuse("controller is not set, expected HOST:PORT");
  for (const auto& [name, value] : {std::pair("controller", &config.controller), std::pair("http", &config.http)}) {
    if (const auto split = SplitHostPort(*value); !split) return Fail(split.error().WithContext(name));
  }
  for (const auto& [name, value] : {std::pair("sample_interval", config.sample_interval),
                                    std::pair("report_interval", config.report_interval)}) {
    if (value < Seconds(0.01) || value > Seconds(60)) {
      return refuse(fmt::format("{} {} s, expected 10 ms to 60 s", name, value.count()));
    }
  }
  if (config.probe_candidates < 0 || config.probe_candidates > 256) {
    return refuse(fmt::format("probe_candidates {}, expected 0 to 256", config.probe_candidates));
  }
  const UserLimits& quotas = config.quotas;
  for (const auto& [name, value] : {std::pair("segments", quotas.segments), std::pair("memory_mib", quotas.memory_mib),
                                    std::pair("flows", quotas.flows), std::pair("destinations", quotas.destinations)}) {
    if (value < 1) return refuse(fmt::format("quotas: {} {}, expected 1 or more", name, value));
  }
  static const std::set<std::string> levels = {"debug", "info", "warn", "error"};
  if (!levels.contains(config.log_level)) {
    return refuse(fmt::format("log_level \"{}\", expected debug, info, warn or error", config.log_level));
  }
  const int named = !config.tls_certificate.empty() + !config.tls_key.empty() + !config.tls_authority.empty();
  if (named == 0 && !config.viewer_tokens.empty()) {
    return refuse("tls: viewer_tokens without certificates, expected certificate, key and authority as well");
  }
  if (named != 0 && named != 3) return refuse("tls: expected certificate, key and authority, or none of them");
  return Ok();
}

}  // namespace weft::agent
