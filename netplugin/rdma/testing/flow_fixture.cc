#include "netplugin/rdma/testing/flow_fixture.h"

#include <cstring>

namespace weft::net::rdma::testing {
namespace {

char ByteOf(int message, size_t place) { return static_cast<char>(message * 131 + place * 7 + (place >> 9)); }

}  // namespace

void FlowFixture::Exchange(int count, size_t largest, int window, const std::function<void(int)>& meanwhile,
                           const std::function<void()>& always) {
  struct Place {
    Request* send = nullptr;
    Request* receive = nullptr;
    int message = -1;
    size_t size = 0;
  };
  std::vector<Place> places(static_cast<size_t>(window));
  const size_t step = kRoom / places.size();
  ASSERT_LE(largest, step);
  std::vector<size_t> sizes(static_cast<size_t>(count));
  for (size_t& size : sizes) size = random_() % 8 == 0 ? random_() % 200 : random_() % (largest + 1);
  int posted = 0, sent = 0, done = 0;
  ASSERT_TRUE(Eventually([&] {
    always();
    if (posted < count) {
      Place& place = places[static_cast<size_t>(posted % window)];
      char* to = &target_[static_cast<size_t>(posted % window) * step];
      if (place.message < 0) {
        EXPECT_EQ(recv_->Irecv(to, step, 0, target_handle_, &place.receive), nccl::kSuccess);
        if (place.receive) {
          for (size_t i = 0; i < step; ++i) {
            if (to[i] != kUntouched) ADD_FAILURE() << "message " << posted << ": a free buffer was written to at " << i;
            if (to[i] != kUntouched) break;
          }
          place.message = posted++;
          place.size = sizes[static_cast<size_t>(place.message)];
        }
      }
    }
    if (sent < posted) {
      Place& place = places[static_cast<size_t>(sent % window)];
      char* from = &source_[static_cast<size_t>(sent % window) * step];
      if (!place.send) {
        for (size_t i = 0; i < place.size; ++i) from[i] = ByteOf(sent, i);
        EXPECT_EQ(send_->Isend(from, place.size, 0, source_handle_, &place.send), nccl::kSuccess);
        if (place.send) meanwhile(sent++);
      }
    }
    Place& oldest = places[static_cast<size_t>(done % window)];
    if (oldest.message == done && sent > done) {
      int finished = 0, size = 0;
      if (oldest.receive) {
        EXPECT_EQ(recv_->Test(oldest.receive, &finished, &size), nccl::kSuccess);
        if (finished) {
          oldest.receive = nullptr;
          EXPECT_EQ(static_cast<size_t>(size), oldest.size);
          char* to = &target_[static_cast<size_t>(done % window) * step];
          for (size_t i = 0; i < oldest.size; ++i) {
            if (to[i] != ByteOf(done, i)) ADD_FAILURE() << "message " << done << " is wrong at " << i;
            if (to[i] != ByteOf(done, i)) break;
          }
          std::memset(to, kUntouched, step);
        }
      }
      if (oldest.send) {
        EXPECT_EQ(send_->Test(oldest.send, &finished, &size), nccl::kSuccess);
        if (finished) oldest.send = nullptr;
      }
      if (!oldest.send && !oldest.receive) {
        oldest.message = -1;
        ++done;
      }
    }
    return done == count || ::testing::Test::HasFailure();
  })) << "stuck: " << posted << " posted, " << sent << " sent, " << done << " done of " << count;
  const auto counts = fabric_.counts();
  EXPECT_EQ(counts.access_errors, 0u);
  EXPECT_EQ(counts.overruns, 0u);
}

}  // namespace weft::net::rdma::testing
