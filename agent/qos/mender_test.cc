#include "agent/qos/mender.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "agent/testing/plugin.h"

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A port whose settings are what was last written to it.
struct Port {
  PortSettings settings{.interface = "eth0"};
  std::string refuses;  // the writer that fails
  std::vector<std::string> wrote;

  Port() {
    settings.dcb.emplace();
    settings.dcb->apps = {{5, 0, 26}};
    settings.dcb->pfc = ieee_pfc{.pfc_en = 0};
    settings.rdma = {{.device = "rxe0", .port = 1, .interface = "eth0", .roce_tos = 0}};
  }
  QosWriters Writers() {
    return {.dcb = [this](const std::string&, const DcbChange& change) -> Status {
              wrote.push_back("dcb");
              if (refuses == "dcb") return Fail(Code::kUnavailable, "dcb: Invalid argument");
              for (const DcbApp& app : change.remove) settings.dcb->apps.erase(app);
              settings.dcb->apps.insert(change.add.begin(), change.add.end());
              if (change.pfc) settings.dcb->pfc = change.pfc;
              return Ok();
            },
            .roce_tos = [this](const PortChange::Number& number) -> Status {
              wrote.push_back("roce-tos");
              if (refuses == "roce-tos") return Fail(Code::kFailedPrecondition, "write: Operation not permitted");
              settings.rdma[0].roce_tos = number.value;
              return Ok();
            },
            .forced_class = [](const PortChange::Number&) { return Ok(); }};
  }
  PortChange Change() const {
    PortChange change;
    change.dcb.add = {{5, 3, 26}};
    change.dcb.remove = {{5, 0, 26}};
    change.dcb.pfc = ieee_pfc{.pfc_en = 8};
    change.roce_tos = {{"rxe0", 1, 106}};
    return change;
  }
};

struct QosMenderTest : ::testing::Test {
  TempDir dir;
  std::string path = dir.path + "/before.json";
  Port port;
};

TEST_F(QosMenderTest, AppliesRemembersAndReverts) {
  QosMender mender(path, port.Writers());
  EXPECT_FALSE(mender.has_record());
  ASSERT_TRUE(mender.Apply(port.settings, port.Change()));
  EXPECT_TRUE(port.settings.dcb->apps.contains({5, 3, 26}));
  EXPECT_EQ(port.settings.rdma[0].roce_tos, 106);
  // Somebody else's change and a second command do not make the record forget what was there at first.
  port.settings.rdma[0].roce_tos = 40;
  PortChange again;
  again.roce_tos = {{"rxe0", 1, 106}};
  ASSERT_TRUE(mender.Apply(port.settings, again));

  QosMender later(path, port.Writers());  // the agent was restarted
  EXPECT_TRUE(later.has_record());
  std::vector<std::string> done;
  ASSERT_TRUE(later.Revert(port.settings, &done));
  EXPECT_THAT(done, ElementsAre("eth0: roce-tos of rxe0 port 1: 0, as before", "eth0: DCB settings as before"));
  EXPECT_THAT(port.settings.dcb->apps, ElementsAre(DcbApp{5, 0, 26}));
  EXPECT_EQ(port.settings.dcb->pfc->pfc_en, 0);
  EXPECT_EQ(port.settings.rdma[0].roce_tos, 0);
  EXPECT_FALSE(later.has_record());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(QosMenderTest, APartThatFailsLeavesThePortAsItWas) {
  port.refuses = "roce-tos";
  QosMender mender(path, port.Writers());
  const Status status = mender.Apply(port.settings, port.Change());
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("not permitted"));
  EXPECT_THAT(port.settings.dcb->apps, ElementsAre(DcbApp{5, 0, 26}));
  EXPECT_EQ(port.settings.dcb->pfc->pfc_en, 0);
}

TEST_F(QosMenderTest, NothingIsSetWithoutARecord) {
  QosMender mender("/nowhere/before.json", port.Writers());
  const Status status = mender.Apply(port.settings, port.Change());
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("nothing is set"));
  EXPECT_THAT(port.wrote, IsEmpty());
}

TEST_F(QosMenderTest, ABrokenRecordIsNotOverwritten) {
  std::ofstream(path) << "{\"version\":1,\"ports\":{\"eth0\":{\"dcb\":{\"apps\":[],\"pfc\":\"00\"},\"roce_tos\":[],\"forced_class\":[]}}}";
  QosMender mender(path, port.Writers());
  EXPECT_THAT(mender.problem(), HasSubstr("\"pfc\" has 2 digits"));
  EXPECT_FALSE(mender.Apply(port.settings, port.Change()));
  std::vector<std::string> done;
  EXPECT_FALSE(mender.Revert(port.settings, &done));
  EXPECT_THAT(port.wrote, IsEmpty());
}

TEST(QosRecord, ComesBackAsItWas) {
  Port port;
  port.settings.dcb->ets = ieee_ets{.ets_cap = 8};
  port.settings.dcb->trust = {5, 255};
  const std::map<std::string, PortBefore> before{{"eth0", {port.settings.dcb, {{"rxe0", 1, 7}}, {{"rxe0", 1, 9}}}}};
  const auto read = ParseRecord(RecordText(before));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(RecordText(*read), RecordText(before));
  EXPECT_EQ(read->at("eth0").dcb->ets->ets_cap, 8);
  for (const char* text : {"", "[]", "{}", "{\"version\":2,\"ports\":{}}",
                           "{\"version\":1,\"ports\":{\"a\":1}}"}) EXPECT_FALSE(ParseRecord(text)) << text;
}

}  // namespace
}  // namespace weft::agent
