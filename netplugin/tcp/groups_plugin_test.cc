// Receives of several buffers and messages of several tags, through the exported tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <span>

#include "netplugin/testing/agent_fixture.h"

namespace weft::net::testing {
namespace {

/// Random groups of receives, and the same messages in another order: of each tag as they are posted, across tags not.
class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed), seed_(seed) {
    const bool single_first = seed % 2 == 0;  // receives go by number until the first other tag
    std::map<int, std::deque<std::pair<size_t, size_t>>> wanted;  // of each tag: group and place
    for (size_t g = 0; g < 60; ++g) {
      const bool single = single_first && g < 12;
      std::vector<int> tags(single ? 1 : 1 + random_() % kMostGrouped);
      for (int& tag : tags) tag = single ? 0 : static_cast<int>(random_() % 4);
      for (size_t i = 0; i < tags.size(); ++i) {
        wanted[tags[i]].push_back({g, i});
        order_.push_back(tags[i]);
      }
      groups_.push_back(std::move(tags));
    }
    // Neighbours are exchanged, far ones too: one tag runs ahead by up to some 40 messages.
    const auto last = order_.size() - 1;
    for (size_t i = 0; i <= last; ++i) std::swap(order_[i], order_[std::min<size_t>(last, i + random_() % 40)]);
    for (size_t m = 0; m <= last; ++m) {
      data_.emplace_back();
      Fill(&data_[m], random_() % (random_() % 3 == 0 ? kRoom : 3000), m);
      content_[wanted[order_[m]].front()] = m;
      wanted[order_[m]].pop_front();
    }
  }

  void Run(Table& table, const Pair& pair) {
    ASSERT_TRUE(Eventually([&] {
      SendOne(table, pair.send);
      if (posted_.size() < groups_.size() && random_() % 3 == 0) PostOne(table, pair.recv);
      TestOldest(table);
      return ::testing::Test::HasFailure() || (tested_ == groups_.size() && sends_.empty());
    })) << "seed " << seed_ << ": " << posted_.size() << " groups posted, " << tested_ << " complete, " << sent_ << " of "
        << order_.size() << " messages sent";
  }

 private:
  static constexpr size_t kRoom = 100'000;

  struct Posted {
    void* request = nullptr;
    std::vector<std::vector<char>> room;
  };

  void SendOne(Table& table, void* comm) {
    void* request = nullptr;
    int done = 0;
    if (sent_ < order_.size()) {
      EXPECT_EQ(table.Isend(comm, data_[sent_].data(), data_[sent_].size(), order_[sent_], nullptr, &request),
                nccl::kSuccess);
    }
    if (request) sends_.push_back(request), ++sent_;
    while (!sends_.empty() && table.Test(sends_.front(), &done, nullptr) == nccl::kSuccess && done) sends_.pop_front();
  }
  void PostOne(Table& table, void* comm) {
    std::vector<int>& tags = groups_[posted_.size()];
    Posted group;
    group.room.assign(tags.size(), std::vector<char>(kRoom + 8));
    std::vector<void*> data, handles(tags.size(), nullptr);
    std::vector<size_t> sizes(tags.size(), kRoom);
    for (auto& room : group.room) data.push_back(room.data());
    EXPECT_EQ(table.Irecv(comm, static_cast<int>(tags.size()), data.data(), sizes.data(), tags.data(), handles.data(),
                          &group.request),
              nccl::kSuccess);
    if (group.request) posted_.push_back(std::move(group));
  }
  void TestOldest(Table& table) {
    if (tested_ == posted_.size()) return;
    int done = 0, got[kMostGrouped];
    EXPECT_EQ(table.Test(posted_[tested_].request, &done, got), nccl::kSuccess);
    if (!done) return;
    for (size_t i = 0; i < groups_[tested_].size(); ++i) {
      const uint64_t message = content_[{tested_, i}];
      std::vector<char>& room = posted_[tested_].room[i];
      const size_t size = data_[message].size();
      ASSERT_EQ(got[i], static_cast<int>(size)) << "seed " << seed_ << " group " << tested_ << " buffer " << i;
      ASSERT_TRUE(std::equal(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(size), data_[message].begin()))
          << "seed " << seed_ << " group " << tested_ << " buffer " << i;
      ASSERT_TRUE(std::all_of(room.begin() + static_cast<std::ptrdiff_t>(size), room.end(), [](char c) { return c == 0; }));
      room = {};
    }
    ++tested_;
  }

  std::mt19937_64 random_;
  const uint64_t seed_;
  std::vector<std::vector<int>> groups_;  // tags
  std::vector<int> order_;                // tags, as they are sent
  std::vector<std::vector<char>> data_;
  std::map<std::pair<size_t, size_t>, uint64_t> content_;  // of group and place: the message
  std::vector<Posted> posted_;
  std::deque<void*> sends_;
  size_t sent_ = 0, tested_ = 0;
};

class GroupsTest : public ::testing::TestWithParam<int> {
 protected:
  GroupsTest() {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("WEFT_RUN_DIR", "", 1);
    plugin_ = std::make_unique<Plugin>(GetParam());
    EXPECT_EQ(table().Init(&LogCapture::Logger), nccl::kSuccess);
    pair_ = MakePair(table());
  }
  ~GroupsTest() override {
    ClosePair(table(), pair_);
    EXPECT_EQ(table().Finalize(), nccl::kSuccess);
  }
  Table& table() { return **plugin_; }

  struct Group {
    void* request = nullptr;
    std::vector<std::vector<char>> room;
    std::vector<size_t> sizes;
    std::vector<int> tags;
  };

  /// Posts a receive of one buffer of `size` bytes per tag; nullptr in `request` if it was not taken.
  void Post(Group* group, const std::vector<int>& tags, size_t size) {
    group->tags = tags;
    group->sizes.assign(tags.size(), size);
    group->room.assign(tags.size(), std::vector<char>(size + 8));
    std::vector<void*> data, handles(tags.size(), nullptr);
    for (auto& room : group->room) data.push_back(room.data());
    ASSERT_EQ(table().Irecv(pair_.recv, static_cast<int>(tags.size()), data.data(), group->sizes.data(),
                            group->tags.data(), handles.data(), &group->request),
              nccl::kSuccess);
  }
  void* Send(const std::vector<char>& data, size_t size, int tag) {
    void* request = nullptr;
    EXPECT_EQ(table().Isend(pair_.send, data.data(), size, tag, nullptr, &request), nccl::kSuccess);
    return request;
  }
  bool Done(void* request, int* sizes = nullptr) {
    int done = 0;
    EXPECT_EQ(table().Test(request, &done, sizes), nccl::kSuccess);
    return done == 1;
  }
  /// Sends and waits for both ends.
  void SendAndFinish(const std::vector<std::pair<int, size_t>>& messages, Group* group, std::vector<int>* sizes) {
    std::vector<std::vector<char>> data(messages.size());
    std::deque<void*> sends;
    for (size_t i = 0; i < messages.size(); ++i) {
      Fill(&data[i], messages[i].second, i);
      sends.push_back(Send(data[i], messages[i].second, messages[i].first));
      ASSERT_NE(sends.back(), nullptr);
    }
    sizes->assign(kMostGrouped, -1);
    ASSERT_TRUE(Eventually([&] { return Done(group->request, sizes->data()); }));
    for (void* request : sends) ASSERT_TRUE(Eventually([&] { return Done(request); }));
  }

  std::unique_ptr<Plugin> plugin_;
  Pair pair_;
};

INSTANTIATE_TEST_SUITE_P(Versions, GroupsTest, ::testing::Values(7, 8, 9, 10, 11, 12),
                         [](const auto& version) { return std::string("V").append(std::to_string(version.param)); });

TEST_P(GroupsTest, OneTagFillsTheBuffersInOrderAndEachHasItsSize) {
  Group group;
  Post(&group, std::vector<int>(8, 5), 5000);
  ASSERT_NE(group.request, nullptr);
  std::vector<std::pair<int, size_t>> messages;
  for (size_t i = 0; i < 8; ++i) messages.push_back({5, 600 * i});
  std::vector<int> sizes;
  SendAndFinish(messages, &group, &sizes);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(sizes[i], static_cast<int>(600 * i));
    EXPECT_TRUE(Check(group.room[i], 600 * i, i)) << i;
  }
}

TEST_P(GroupsTest, TagsDecideWhateverTheOrder) {
  Group group;
  Post(&group, {7, 8, 9}, 200'000);
  std::vector<int> sizes;
  SendAndFinish({{9, 150'000}, {7, 0}, {8, 12}}, &group, &sizes);
  EXPECT_EQ(std::vector<int>(sizes.begin(), sizes.begin() + 3), (std::vector<int>{0, 12, 150'000}));
  EXPECT_TRUE(Check(group.room[2], 150'000, 0));
  EXPECT_TRUE(Check(group.room[1], 12, 2));
}

TEST_P(GroupsTest, GroupsFollowReceivesOfOneBuffer) {
  Group one, two, three;
  Post(&one, {1}, 100'000);
  Post(&two, {1}, 100'000);
  std::vector<char> data[4];
  for (size_t i = 0; i < 4; ++i) Fill(&data[i], 90'000 + i, i);
  void* sends[4];
  sends[0] = Send(data[0], 90'000, 1);
  ASSERT_TRUE(Eventually([&] { return Done(one.request); }));
  // Tag 2 comes before what the second receive waits for.
  sends[1] = Send(data[1], 90'001, 2);
  sends[2] = Send(data[2], 90'002, 1);
  sends[3] = Send(data[3], 90'003, 1);
  ASSERT_TRUE(Eventually([&] { return Done(two.request); }));
  EXPECT_TRUE(Check(two.room[0], 90'002, 2));
  Post(&three, {2, 1}, 100'000);
  ASSERT_TRUE(Eventually([&] { return Done(three.request); }));
  EXPECT_TRUE(Check(three.room[0], 90'001, 1));
  EXPECT_TRUE(Check(three.room[1], 90'003, 3));
  for (void* send : sends) ASSERT_TRUE(Eventually([&] { return Done(send); }));
}

TEST_P(GroupsTest, RunningAheadOfOneTagEnds) {
  // A group waits for tag 2; its sender first sends tag 1 for ever. It is told to stop, and the group completes.
  constexpr size_t kSize = 64 << 10;
  Group group;
  Post(&group, {1, 2}, kSize);
  std::deque<std::pair<void*, std::vector<char>>> sends;
  const auto drop_sent = [&] {
    while (!sends.empty() && Done(sends.front().first)) sends.pop_front();
  };
  size_t sent = 0;
  int refused = 0;
  ASSERT_TRUE(Eventually([&] {
    drop_sent();
    std::vector<char> data;
    Fill(&data, kSize, sent);
    if (void* request = Send(data, kSize, 1)) {
      sends.emplace_back(request, std::move(data));
      ++sent;
      refused = 0;
    } else {
      refused = sends.size() == nccl::kMaxRequests ? 0 : refused + 1;
    }
    EXPECT_FALSE(Done(group.request)) << "tag 2 was never sent";
    return refused > 2000;
  })) << "sent " << sent;
  std::vector<char> last;
  Fill(&last, 1000, 9);
  void* second = Send(last, 1000, 2);
  ASSERT_NE(second, nullptr) << "a receive of tag 2 is posted";
  std::vector<int> sizes(kMostGrouped, -1);
  ASSERT_TRUE(Eventually([&] { return Done(group.request, sizes.data()); }));
  EXPECT_EQ(sizes[0], static_cast<int>(kSize));
  EXPECT_EQ(sizes[1], 1000);
  EXPECT_TRUE(Check(group.room[0], kSize, 0));
  EXPECT_TRUE(Check(group.room[1], 1000, 9));
  // The rest is there when it is asked for, and then the sender may go on.
  for (size_t i = 1; i < sent; ++i) {
    Post(&group, {1}, kSize);
    ASSERT_TRUE(Eventually([&] { return Done(group.request); })) << i;
    ASSERT_TRUE(Check(group.room[0], kSize, i)) << i;
    drop_sent();
  }
  Post(&group, {1}, kSize);
  void* more = nullptr;
  ASSERT_TRUE(Eventually([&] { return (more = Send(last, 1000, 1)) != nullptr; }));
  ASSERT_TRUE(Eventually([&] { return Done(group.request); }));
  ASSERT_TRUE(Eventually([&] { return Done(more); }));
}

TEST_P(GroupsTest, MessageLongerThanItsBufferIsAnErrorInAGroupToo) {
  Group group;
  Post(&group, {1, 2}, 100);
  std::vector<char> data;
  Fill(&data, 101, 0);
  void* request = Send(data, 101, 2);
  int done = 0, result = nccl::kSuccess;
  EXPECT_TRUE(Eventually([&] {
    result = table().Test(group.request, &done, nullptr);
    return result != nccl::kSuccess || done == 1;
  }));
  EXPECT_EQ(result, nccl::kInternalError);
  EXPECT_NE(request, nullptr);
}

TEST_P(GroupsTest, AnyProgramThatTagsAllowEnds) {
  // A flow that goes by tags stays with them: a program for either beginning.
  Program(GetParam()).Run(table(), pair_);
  for (uint64_t seed = 100; seed < 105; ++seed) Program(seed).Run(table(), pair_);
}

using GroupsOverLanes = AgentTest;

TEST_F(GroupsOverLanes, AnyProgramThatTagsAllowEnds) {
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  for (uint64_t seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    // A flow of its own for each, whose lanes overtake each other: weights far apart.
    ClosePair(table(), pair_);
    pair_ = MakePair(table());
    const WantedLane lanes[] = {{FreePort(), 1}, {FreePort(), 7}, {FreePort(), 3}};
    file.Write(MakePolicy(flow().flow, lanes));
    // A first message, by which the sender looks at its policy.
    std::vector<char> data(10);
    int size = 0;
    ASSERT_TRUE(Eventually([&] {
      EXPECT_EQ(SendAll(table(), pair_.send, data.data(), 10), nccl::kSuccess);
      EXPECT_EQ(ReceiveAll(table(), pair_.recv, data.data(), 10, &size), nccl::kSuccess);
      return HasFailure() || InForce(lanes);
    }));
    Program(seed).Run(table(), pair_);
  }
}

TEST_P(GroupsTest, NeitherNoneNorNineBuffers) {
  std::vector<char> room(10);
  std::vector<void*> data(9, room.data()), handles(9, nullptr);
  std::vector<size_t> sizes(9, 1);
  std::vector<int> tags(9, 0);
  void* request = nullptr;
  for (const int n : {0, -1}) {
    EXPECT_EQ(table().Irecv(pair_.recv, n, data.data(), sizes.data(), tags.data(), handles.data(), &request),
              nccl::kInvalidArgument);
  }
  if (GetParam() >= 9) {  // the test's own narrowing of sizes has eight places
    EXPECT_EQ(table().Irecv(pair_.recv, 9, data.data(), sizes.data(), tags.data(), handles.data(), &request),
              nccl::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weft::net::testing
