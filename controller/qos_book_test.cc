#include "controller/qos_book.h"

#include <gmock/gmock.h>

namespace weft::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::QosReport Report(int64_t mtu, int32_t roce_tos) {
  v1::QosReport report;
  v1::QosPort* port = report.add_ports();
  port->set_interface("eth0");
  port->set_mtu(mtu);
  port->set_roce_tos(roce_tos);
  return report;
}

TEST(QosBook, NamesWhatDiffersBetweenHosts) {
  QosBook book{v1::QosDeclaration()};
  book.Take("h1", Report(9000, 106), 1);
  book.Take("h2", Report(9000, 106), 1);
  EXPECT_THAT(book.Answer({"h1"}).differences(), IsEmpty());
  book.Take("h3", Report(1500, 106), 1);
  EXPECT_THAT(book.Answer({"h1"}).differences(), ElementsAre("mtu: 1500 on h3 eth0; 9000 on h1 eth0, h2 eth0"));
  book.Take("h3", Report(9000, 106), 2);
  EXPECT_THAT(book.Answer({"h1"}).differences(), IsEmpty()) << "the newest report counts";
}

TEST(QosBook, SaysWhichHostsSpokeAndWhichDidNot) {
  QosBook book{v1::QosDeclaration()};
  book.Take("h1", Report(9000, 106), 7);
  const v1::GetQosResponse answer = book.Answer({"h2"});
  ASSERT_EQ(answer.hosts_size(), 2);
  EXPECT_EQ(answer.hosts(0).host(), "h1");
  EXPECT_FALSE(answer.hosts(0).connected());
  EXPECT_EQ(answer.hosts(0).reported_s(), 7);
  EXPECT_EQ(answer.hosts(1).host(), "h2");
  EXPECT_TRUE(answer.hosts(1).connected());
  EXPECT_FALSE(answer.hosts(1).has_report());
}

TEST(QosBook, LinesAreOfTheHostsThatAreAskedFor) {
  QosBook book{v1::QosDeclaration()};
  v1::QosReport report = Report(1500, 0);
  v1::QosDrift* drift = report.add_drifts();
  drift->set_interface("eth0");
  drift->set_setting("roce-tos");
  drift->set_is("0 (DSCP 0)");
  drift->set_expected("106 (DSCP 26)");
  v1::QosRewrite* rewrite = report.add_rewrites();
  rewrite->set_dscp(26);
  rewrite->set_source("10.1.1.2");
  rewrite->set_destination("10.2.1.2");
  rewrite->set_at("10.255.2.1");
  rewrite->set_after("10.255.1.1");
  book.Take("h1", report, 1);
  EXPECT_THAT(book.Lines({"h2"}), IsEmpty());
  EXPECT_THAT(book.Lines({}), ElementsAre("h1 eth0: roce-tos: 0 (DSCP 0), expected 106 (DSCP 26)",
                                          "DSCP 26 from 10.1.1.2 to 10.2.1.2 arrives as 0 at 10.255.2.1: changed there or by 10.255.1.1"));
  EXPECT_EQ(book.Drifts().at("h1"), 2);
}

TEST(QosBook, AHostThatSaysTooMuchIsCut) {
  QosBook book{v1::QosDeclaration()};
  v1::QosReport many;
  for (int i = 0; i < 10'000; ++i) many.add_drifts()->set_setting("mtu");
  EXPECT_FALSE(book.Take("h1", many, 1));
  EXPECT_THAT(book.Answer({}).hosts(0).report().drifts(), SizeIs(512));
  v1::QosReport large;
  large.add_drifts()->set_is(std::string(1 << 20, 'x'));
  EXPECT_FALSE(book.Take("h1", large, 1));
  EXPECT_THAT(book.Lines({}), IsEmpty());
}

TEST(QosBook, CommandsAreNumberedUpwards) {
  QosBook book{v1::QosDeclaration()};
  EXPECT_EQ(book.NextCommand(1000), 1000);
  EXPECT_EQ(book.NextCommand(1000), 1001);
  EXPECT_EQ(book.NextCommand(5), 1002) << "the clock may go back";
}

}  // namespace
}  // namespace weft::controller
