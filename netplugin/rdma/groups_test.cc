// Receives of several buffers over RDMA flows: each message goes to the oldest buffer of its tag.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "netplugin/rdma/testing/flow_fixture.h"

namespace weft::net::rdma {
namespace {

using testing::Eventually;
using testing::kUntouched;

class RdmaGroups : public testing::FlowFixture {
 protected:
  static constexpr size_t kPlace = 9000;  // of a buffer in source and target, its guard included
  static constexpr size_t kLargest = 8192;

  struct Message {
    size_t group, place, size;
    int tag;
    size_t index;  // of its places in source and target
  };
  struct Posted {
    Request* request = nullptr;
    size_t group;
  };

  /// Groups of random tags, and the messages for them in an order that tags allow.
  void Draw(uint64_t seed) {
    std::mt19937_64 random(seed);
    groups_.clear();
    messages_.clear();
    size_t index = 0;
    std::map<int, std::deque<Message>> of_tag;
    std::vector<int> order;
    while (index + kMaxRecvs < source_.size() / kPlace) {
      std::vector<Message> group(1 + random() % kMaxRecvs);
      for (size_t i = 0; i < group.size(); ++i) {
        group[i] = {groups_.size(), i, random() % 5 == 0 ? 0 : random() % kLargest, static_cast<int>(random() % 6), index++};
        of_tag[group[i].tag].push_back(group[i]);
        order.push_back(group[i].tag);
      }
      groups_.push_back(std::move(group));
    }
    // No message more than ten places away from its own: the receiver has 32 buffers, and a message needs one to be sent.
    std::vector<std::pair<size_t, int>> by_place;
    for (size_t i = 0; i < order.size(); ++i) by_place.push_back({i + random() % 10, order[i]});
    std::ranges::stable_sort(by_place, {}, &std::pair<size_t, int>::first);
    for (const auto& [place, tag] : by_place) {
      messages_.push_back(of_tag[tag].front());
      of_tag[tag].pop_front();
    }
    for (char& byte : source_) byte = static_cast<char>(random());
    std::fill(target_.begin(), target_.end(), kUntouched);
  }

  bool Post(size_t group, Request** request) {
    const auto& wanted = groups_[group];
    std::vector<void*> data, handles(wanted.size(), target_handle_);
    std::vector<uint64_t> sizes(wanted.size(), kLargest);
    std::vector<int> tags;
    for (const Message& message : wanted) {
      data.push_back(&target_[message.index * kPlace]);
      tags.push_back(message.tag);
    }
    EXPECT_EQ(recv_->IrecvGroup(static_cast<int>(wanted.size()), data.data(), sizes.data(), tags.data(), handles.data(),
                                request),
              nccl::kSuccess);
    return *request != nullptr;
  }

  void CheckGroup(size_t group, const int* sizes) {
    for (const Message& message : groups_[group]) {
      ASSERT_EQ(sizes[message.place], static_cast<int>(message.size)) << group << " " << message.place;
      const char* got = &target_[message.index * kPlace];
      ASSERT_TRUE(std::equal(got, got + message.size, &source_[message.index * kPlace])) << group << " " << message.place;
      ASSERT_TRUE(std::all_of(got + message.size, got + kPlace, [](char c) { return c == kUntouched; })) << group;
    }
  }

  /// The sender may be ahead of one tag, never of what is posted for it: whoever cannot go on lets the other.
  void Run() {
    std::deque<Posted> posted;
    std::deque<Request*> sends;
    size_t next_group = 0, next_message = 0;
    ASSERT_TRUE(Eventually([&] {
      if (next_message < messages_.size()) {
        const Message& message = messages_[next_message];
        Request* request = nullptr;
        EXPECT_EQ(send_->Isend(&source_[message.index * kPlace], message.size, message.tag, source_handle_, &request),
                  nccl::kSuccess);
        if (request) sends.push_back(request), ++next_message;
      }
      Request* request = nullptr;
      if (next_group < groups_.size() && random_() % 3 == 0 && Post(next_group, &request)) {
        posted.push_back({request, next_group++});
      }
      int done = 0;
      while (!sends.empty() && send_->Test(sends.front(), &done, nullptr) == nccl::kSuccess && done) sends.pop_front();
      // Any group may be tested, the oldest is the likeliest.
      const size_t which = posted.empty() || random_() % 4 ? 0 : random_() % posted.size();
      int sizes[kMaxRecvs];
      if (!posted.empty()) {
        EXPECT_EQ(recv_->Test(posted[which].request, &done, sizes), nccl::kSuccess);
        if (done) {
          CheckGroup(posted[which].group, sizes);
          posted.erase(posted.begin() + static_cast<std::ptrdiff_t>(which));
        }
      }
      return HasFailure() || (next_group == groups_.size() && posted.empty() && sends.empty());
    })) << next_group << " of " << groups_.size() << " groups posted, " << next_message << " of " << messages_.size()
        << " messages sent";
  }

  std::vector<std::vector<Message>> groups_;
  std::vector<Message> messages_;
};

TEST_F(RdmaGroups, AnyOrderThatTagsAllowArrives) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  for (uint64_t seed = 1; seed <= 10 && !HasFailure(); ++seed) {
    Draw(seed);
    Run();
  }
  EXPECT_EQ(fabric_.counts().failures, 0u);
}

TEST_F(RdmaGroups, FailedQueuePairsLoseNothing) {
  ASSERT_NO_FATAL_FAILURE(Connect([](RdmaEnvironment& rdma) { rdma.timeout = 8, rdma.retry_count = 0; }));
  fabric_.FailWrites(300);
  for (uint64_t seed = 1; seed <= 3 && !HasFailure(); ++seed) {
    Draw(seed);
    Run();
  }
  EXPECT_GT(fabric_.counts().failures, 0u);
}

TEST_F(RdmaGroups, AMessageWhoseTagIsNotPostedWaitsAndHoldsUpNobody) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  void* data[] = {&target_[0], &target_[kPlace]};
  void* handles[] = {target_handle_, target_handle_};
  const uint64_t sizes[] = {100, 100};
  const int tags[] = {1, 2};
  Request *group = nullptr, *sent = nullptr;
  ASSERT_EQ(recv_->IrecvGroup(2, data, sizes, tags, handles, &group), nccl::kSuccess);
  ASSERT_NE(group, nullptr);
  const auto send = [&](int tag) {
    sent = nullptr;
    EXPECT_EQ(send_->Isend(&source_[0], 10, tag, source_handle_, &sent), nccl::kSuccess);
    return sent != nullptr;
  };
  ASSERT_TRUE(Eventually([&] { return send(2); }));
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(send(2) || send(3)) << "not posted";
  int done = 0, got[2] = {-1, -1};
  EXPECT_EQ(recv_->Test(group, &done, got), nccl::kSuccess);
  EXPECT_EQ(done, 0);
  ASSERT_TRUE(Eventually([&] { return send(1); })) << "its credit may come later than the other's";
  ASSERT_TRUE(Eventually([&] { return recv_->Test(group, &done, got) == nccl::kSuccess && done == 1; }));
  EXPECT_EQ(got[0], 10);
  EXPECT_EQ(got[1], 10);
}

}  // namespace
}  // namespace weft::net::rdma
