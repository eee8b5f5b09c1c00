#include "agent/silent_lanes.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/monotonic.h"

namespace weft::agent {
namespace {

struct Question {
  uint64_t connection, token, until_ns;
  UniqueFd lane;
};

}  // namespace

/// Workers hold it too: one that hangs in a system call is left behind.
struct SilentLanes::Shared {
  struct Done {
    uid_t uid;
    Answer answer;
  };

  std::function<Result<UnsentBytes>(int)> take;
  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;  // guards what follows
  std::map<uid_t, std::deque<Question>> queues;  // of users who have a worker
  std::vector<Done> done;
  bool over = false;

  std::optional<Question> Next(uid_t uid) {
    const std::lock_guard lock(mutex);
    const auto queue = queues.find(uid);
    if (over || queue->second.empty()) {
      queues.erase(queue);
      return std::nullopt;
    }
    Question next = std::move(queue->second.front());
    queue->second.pop_front();
    return next;
  }

  void Work(uid_t uid) {
    while (std::optional<Question> question = Next(uid)) {
      const bool late = MonotonicNs() > question->until_ns;
      Result<UnsentBytes> taken = late ? Result<UnsentBytes>(Fail(Code::kDeadlineExceeded, "asked too long ago")) : take(question->lane.get());
      const std::lock_guard lock(mutex);
      done.push_back({uid, {question->connection, question->token, std::move(taken)}});
      ::eventfd_write(event.get(), 1);
    }
  }
};

SilentLanes::SilentLanes(std::function<Result<UnsentBytes>(int)> take, const SilentLaneLimits& limits)
    : limits_(limits), shared_(std::make_shared<Shared>()) {
  shared_->take = std::move(take);
}

SilentLanes::~SilentLanes() {
  const std::lock_guard lock(shared_->mutex);
  shared_->over = true;
}

int SilentLanes::event_fd() const { return shared_->event.get(); }

Status SilentLanes::Ask(uid_t uid, uint64_t connection, uint64_t token, UniqueFd lane, uint64_t until_ns, uint64_t now_ns) {
  const auto [of, is_new] = users_.try_emplace(uid);
  User& user = of->second;
  const double refilled = static_cast<double>(now_ns - user.counted_ns) / 1e9 * limits_.per_s;
  user.left = is_new ? limits_.at_once : std::min(limits_.at_once, user.left + refilled);
  user.counted_ns = now_ns;
  if (user.left < 1) return Fail(Code::kResourceExhausted, fmt::format("more than {} silent lanes per second and user", limits_.per_s));
  if (user.kept_bytes >= limits_.kept_bytes) {
    return Fail(Code::kResourceExhausted, fmt::format("silent lanes of this user hold {} bytes, expected less than {}", user.kept_bytes, limits_.kept_bytes));
  }
  user.left -= 1;
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->queues.contains(uid)) {
    if (shared_->queues.size() >= limits_.users) {
      return Fail(Code::kResourceExhausted, fmt::format("silent lanes of {} users at the same time, expected at most that", limits_.users));
    }
    try {
      std::thread([shared = shared_, uid] { shared->Work(uid); }).detach();
    } catch (const std::system_error& error) {
      return Fail(Code::kResourceExhausted, fmt::format("no thread: {}", error.what()));
    }
  }
  std::deque<Question>& queue = shared_->queues[uid];
  if (static_cast<double>(queue.size()) >= limits_.at_once) return Fail(Code::kResourceExhausted, "silent lanes of this user are still waited for");
  queue.push_back({connection, token, until_ns, std::move(lane)});
  return Ok();
}

std::vector<SilentLanes::Answer> SilentLanes::TakeAnswers(uint64_t now_ns) {
  for (; !kept_.empty() && now_ns >= kept_.front().until_ns; kept_.pop_front()) {
    [[maybe_unused]] const int failed = ::ftruncate(kept_.front().file.get(), 0);
    users_[kept_.front().uid].kept_bytes -= kept_.front().bytes;
  }
  // Whoever has been quiet for long has his full number again.
  std::erase_if(users_, [&](const auto& user) {
    return user.second.kept_bytes == 0 && static_cast<double>(now_ns - user.second.counted_ns) / 1e9 * limits_.per_s >= limits_.at_once;
  });
  std::vector<Shared::Done> done;
  {
    const std::lock_guard lock(shared_->mutex);
    eventfd_t count = 0;
    ::eventfd_read(shared_->event.get(), &count);
    done.swap(shared_->done);
  }
  std::vector<Answer> answers;
  for (Shared::Done& each : done) {
    if (each.answer.taken) {
      const uint64_t bytes = each.answer.taken->bytes;
      kept_.push_back({UniqueFd(::dup(each.answer.taken->file.get())), each.uid, bytes, now_ns + limits_.kept_ns});
      users_[each.uid].kept_bytes += bytes;
    }
    answers.push_back(std::move(each.answer));
  }
  return answers;
}

int SilentLanes::NextMs(uint64_t now_ns) const {
  if (kept_.empty()) return -1;
  const uint64_t until_ns = kept_.front().until_ns;
  return until_ns <= now_ns ? 0 : static_cast<int>((until_ns - now_ns) / 1'000'000 + 1);
}

}  // namespace weft::agent
