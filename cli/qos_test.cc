#include "cli/qos.h"

#include <gmock/gmock.h>

#include "cli/testing/fake_controller.h"
#include "common/exit_code.h"

namespace weft::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Call;
using testing::FakeController;
using testing::Outcome;

v1::GetQosResponse TwoHosts() {
  v1::GetQosResponse qos;
  v1::QosClass* entry = qos.mutable_declared()->add_classes();
  entry->set_dscp(26);
  entry->set_priority(3);
  entry->set_share(60);
  entry->set_lossless(true);
  qos.mutable_declared()->set_roce_tos(106);
  for (const char* name : {"h1", "h2"}) {
    v1::QosHost* host = qos.add_hosts();
    host->set_host(name);
    host->set_connected(true);
    v1::QosPort* port = host->mutable_report()->add_ports();
    port->set_interface("eth0");
    port->set_rdma_device("mlx5_0");
    port->set_mtu(9000);
    port->set_roce_tos(106);
    (*port->mutable_sent())[26] = 40;
    host->mutable_report()->mutable_answer()->set_id(7);
  }
  return qos;
}

void AddDrift(v1::QosHost* host) {
  v1::QosDrift* drift = host->mutable_report()->add_drifts();
  drift->set_interface("eth0");
  drift->set_setting("dscp-priority");
  drift->set_is("DSCP 26 has no priority");
  drift->set_expected("priority 3");
  drift->add_commands("dcb app replace dev eth0 dscp-prio 26:3");
  drift->add_mlnx_commands("mlnx_qos -i eth0 --dscp2prio set,26,3");
}

TEST(Qos, VerifyShowsAllHostsAndIsDoneWhereAllIsAsDeclared) {
  FakeController controller;
  controller.qos = TwoHosts();
  const Outcome outcome = Call(RunQosVerify, controller.Options());
  EXPECT_EQ(outcome.status, kExitDone) << outcome.err;
  EXPECT_EQ(outcome.out,
            "declared, served first first\n  DSCP 26 priority 3 share 60% lossless\n  roce-tos 106\nhosts\n"
            "h1\n  eth0 (mlx5_0): mtu 9000, roce-tos 106, no DCB; DSCP of sampled packets 26: 40\n"
            "h2\n  eth0 (mlx5_0): mtu 9000, roce-tos 106, no DCB; DSCP of sampled packets 26: 40\nall hosts are as declared\n");
}

TEST(Qos, VerifyFailsWhereSomethingIsNotAndNamesTheCommand) {
  FakeController controller;
  controller.qos = TwoHosts();
  AddDrift(controller.qos.mutable_hosts(1));
  controller.qos.add_differences("mtu: 1500 on h1 eth0; 9000 on h2 eth0");
  OnlineOptions options = controller.Options();
  const Outcome outcome = Call(RunQosVerify, options);
  EXPECT_EQ(outcome.status, kExitFailed);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("not as declared\n  h2 eth0: dscp-priority: DSCP 26 has no priority, expected priority 3\n"
                                           "    dcb app replace dev eth0 dscp-prio 26:3\n"),
                                 HasSubstr("different between hosts\n  mtu: 1500 on h1 eth0; 9000 on h2 eth0\n")));
  options.syntax = "mlnx_qos";
  EXPECT_EQ(Call(RunQosVerify, options).out, "# h2\nmlnx_qos -i eth0 --dscp2prio set,26,3\n");
  options.syntax = "dcb";
  EXPECT_EQ(Call(RunQosVerify, options).out, "# h2\ndcb app replace dev eth0 dscp-prio 26:3\n");
}

TEST(Qos, AHostThatSaysNothingIsNotGood) {
  FakeController controller;
  controller.qos = TwoHosts();
  controller.qos.mutable_hosts(0)->clear_report();
  const Outcome outcome = Call(RunQosVerify, controller.Options());
  EXPECT_EQ(outcome.status, kExitFailed);
  EXPECT_THAT(outcome.out, HasSubstr("h1: has not said anything yet"));
}

TEST(Qos, WithoutADeclarationThereIsNothingToVerify) {
  FakeController controller;
  const Outcome outcome = Call(RunQosVerify, controller.Options());
  EXPECT_EQ(outcome.status, kExitFailed);
  EXPECT_THAT(outcome.err, HasSubstr("declares nothing"));
}

TEST(Qos, ApplyPrintsWhatEachHostDidAndFailsWhereOneCouldNot) {
  FakeController controller;
  controller.qos = TwoHosts();
  controller.qos.mutable_hosts(0)->mutable_report()->mutable_answer()->add_done("eth0: roce-tos: 0 (DSCP 0) -> 106 (DSCP 26)");
  OnlineOptions options = controller.Options();
  options.dry_run = true;
  const Outcome dry = Call(RunQosApply, options);
  EXPECT_EQ(dry.status, kExitDone) << dry.err;
  EXPECT_EQ(dry.out, "h1 eth0: roce-tos: 0 (DSCP 0) -> 106 (DSCP 26)\nh2: is as declared, as far as Weft sets it\n");
  controller.qos.mutable_hosts(1)->mutable_report()->mutable_answer()->set_error("this host's agent may not set anything");
  options.dry_run = false;
  const Outcome outcome = Call(RunQosApply, options);
  EXPECT_EQ(outcome.status, kExitFailed);
  EXPECT_THAT(outcome.err, HasSubstr("weft: h2: this host's agent may not set anything"));
  options.hosts = {"h1"};
  EXPECT_EQ(Call(RunQosRevert, options).status, kExitFailed);
  ASSERT_EQ(controller.changed.size(), 3u);
  EXPECT_EQ(controller.changed[0].action(), v1::QOS_ACTION_DRY_RUN);
  EXPECT_EQ(controller.changed[1].action(), v1::QOS_ACTION_APPLY);
  EXPECT_EQ(controller.changed[2].action(), v1::QOS_ACTION_REVERT);
  EXPECT_EQ(controller.changed[2].hosts(0), "h1");
}

}  // namespace
}  // namespace weft::cli
