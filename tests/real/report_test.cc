#include "tests/real/report.h"

#include <gmock/gmock.h>

namespace weft::real {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Case {
  Outcome together{.policy = "ecmp", .jobs = {}, .trace = {}, .shared_bytes = 0.4};
  Outcome apart{.policy = "ecmp+shifts", .jobs = {}, .window_period = Seconds(1), .trace = {}, .shared_bytes = 0.1};
  Ending ending{.jobs = {{.steps = 5, .bytes_sent = 900}}, .rejected = 0, .sent_bytes = 1000, .arrived_bytes = 990};

  Case() {
    apart.jobs.push_back({.name = "a", .spines = {"spine1"}, .traffic_class = 1, .measured = Seconds(1.05),
                          .simulated = Seconds(1), .iterations = 4, .holds = 2, .held = Seconds(1.5)});
  }
  std::vector<std::string> Broken() const { return BrokenFacts({together, apart}, 0, 1, ending); }
};

TEST(RealReport, NothingIsBrokenWhereAllFactsHold) { EXPECT_THAT(Case().Broken(), IsEmpty()); }

TEST(RealReport, EachBrokenFactIsNamed) {
  const auto broken = [](auto spoil) {
    Case made;
    spoil(made);
    return made.Broken();
  };
  EXPECT_THAT(broken([](Case& c) { c.ending.jobs[0].steps = 0; }), ElementsAre("job a made no step"));
  EXPECT_THAT(broken([](Case& c) { c.ending.rejected = 2; }), ElementsAre(HasSubstr("2 policy entries were refused")));
  EXPECT_THAT(broken([](Case& c) { c.ending.arrived_bytes = 900; }), ElementsAre(HasSubstr("900 of 1000 bytes")));
  EXPECT_THAT(broken([](Case& c) { c.ending.jobs[0].bytes_sent = 1001; }), ElementsAre(HasSubstr("less than the 1001")));
  EXPECT_THAT(broken([](Case& c) { c.apart.shared_bytes = 0.3; }), ElementsAre(HasSubstr("bursts do not interleave")));
  EXPECT_THAT(broken([](Case& c) { c.apart.jobs[0].holds = 0; c.apart.jobs[0].held = Seconds(0); }),
              ElementsAre(HasSubstr("no gate held anything")));
  EXPECT_THAT(broken([](Case& c) { c.apart.jobs[0].marked = 0.5; }),
              ElementsAre("ecmp+shifts: 50.0 % of the bytes of job a left in the priority class, which it was not given"));
  EXPECT_THAT(broken([](Case& c) { c.apart.jobs[0].traffic_class = 0; }), ElementsAre(HasSubstr("which it was given")));
  EXPECT_THAT(broken([](Case& c) { c.apart.jobs[0].held = Seconds(2.5); }), ElementsAre(HasSubstr("2 holds of 2.500 s")));
}

TEST(RealReport, ErrorsAreCountedAgainstThePromise) {
  Case made;
  made.apart.jobs.push_back(made.apart.jobs[0]);
  made.apart.jobs[1].measured = Seconds(0.8);
  EXPECT_EQ(Errors({made.apart}, 0.1), "measured against simulated: 1 of 2 within 10 %, mean 12.5 %, worst 20.0 %\n");
  EXPECT_THAT(Table({made.apart}), HasSubstr("+5.0%"));
}

}  // namespace
}  // namespace weft::real
