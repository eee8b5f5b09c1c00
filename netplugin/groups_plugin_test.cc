// Receives of several buffers and messages of several tags, through the exported tables.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <random>

#include "netplugin/testing/plugin.h"

namespace weft::net::testing {
namespace {

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
  std::vector<char> data;
  Fill(&data, kSize, 0);
  std::deque<void*> sends;
  size_t sent = 0;
  int refused = 0;
  ASSERT_TRUE(Eventually([&] {
    while (!sends.empty() && Done(sends.front())) sends.pop_front();
    void* request = Send(data, kSize, 1);
    if (request) {
      sends.push_back(request);
      ++sent;
    }
    EXPECT_FALSE(Done(group.request)) << "tag 2 was never sent";
    const bool full = sends.size() == nccl::kMaxRequests;
    refused = request || full ? 0 : refused + 1;
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
  EXPECT_TRUE(Check(group.room[1], 1000, 9));
  // The rest is there when it is asked for, and then the sender may go on.
  for (size_t i = 1; i < sent; ++i) {
    Post(&group, {1}, kSize);
    ASSERT_TRUE(Eventually([&] { return Done(group.request); })) << i;
    ASSERT_TRUE(Check(group.room[0], kSize, 0)) << i;
    while (!sends.empty() && Done(sends.front())) sends.pop_front();
  }
  Post(&group, {1}, kSize);
  void* more = nullptr;
  ASSERT_TRUE(Eventually([&] { return (more = Send(data, kSize, 1)) != nullptr; }));
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
  // Random groups on one side, on the other the same messages: of each tag in order, across tags in any order.
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::vector<int>> groups;
    std::map<int, std::deque<std::pair<size_t, size_t>>> wanted;  // of each tag: group and place, in order of posting
    std::vector<int> order;
    for (size_t g = 0; g < 60; ++g) {
      std::vector<int> tags(1 + random() % kMostGrouped);
      for (int& tag : tags) tag = static_cast<int>(random() % 4);
      for (size_t i = 0; i < tags.size(); ++i) {
        wanted[tags[i]].push_back({g, i});
        order.push_back(tags[i]);
      }
      groups.push_back(std::move(tags));
    }
    // Neighbours are exchanged, far ones too: one tag runs ahead by up to some 40 messages.
    for (size_t i = 0; i < order.size(); ++i) std::swap(order[i], order[std::min(order.size() - 1, i + random() % 40)]);
    std::map<std::pair<size_t, size_t>, uint64_t> content;
    std::vector<std::vector<char>> data(order.size());
    std::vector<size_t> sizes(order.size());
    for (size_t m = 0; m < order.size(); ++m) {
      sizes[m] = random() % (random() % 3 == 0 ? 100'000 : 3000);
      Fill(&data[m], sizes[m], m);
      content[wanted[order[m]].front()] = m;
      wanted[order[m]].pop_front();
    }
    std::vector<Group> posted(groups.size());
    std::deque<std::pair<size_t, void*>> receives;
    std::deque<void*> sends;
    size_t next_group = 0, next_message = 0;
    ASSERT_TRUE(Eventually([&] {
      if (next_message < order.size()) {
        if (void* request = Send(data[next_message], sizes[next_message], order[next_message])) {
          sends.push_back(request);
          ++next_message;
        }
      }
      while (!sends.empty() && Done(sends.front())) sends.pop_front();
      if (next_group < groups.size() && random() % 3 == 0) {
        Post(&posted[next_group], groups[next_group], 100'000);
        if (posted[next_group].request) receives.push_back({next_group, posted[next_group].request}), ++next_group;
      }
      std::vector<int> got(kMostGrouped, -1);
      while (!receives.empty() && Done(receives.front().second, got.data())) {
        const size_t g = receives.front().first;
        for (size_t i = 0; i < groups[g].size(); ++i) {
          const uint64_t message = content[{g, i}];
          EXPECT_EQ(got[i], static_cast<int>(sizes[message])) << seed << " " << g << " " << i;
          EXPECT_TRUE(Check(posted[g].room[i], sizes[message], message)) << seed << " " << g << " " << i;
        }
        posted[g].room.clear();
        receives.pop_front();
      }
      return next_group == groups.size() && receives.empty() && sends.empty();
    })) << "seed " << seed << ": " << next_group << " groups posted, " << next_message << " of " << order.size() << " sent";
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
