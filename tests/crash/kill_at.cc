// A library to be preloaded into the program: kills it, as kill -9 does, at a chosen one of its calls that
// change files, or lets that call fail, and says in a log which one that was. The program itself knows
// nothing of it.
//
//   LONGHEADS_KILL_LOG=FILE          every call is counted; at the end FILE has one line for each: CALL BYTES
//   LONGHEADS_KILL_AT="K PHASE X"    the K-th call (from 1) is the last: FILE has one line, K CALL PHASE
//   BYTES
//   LONGHEADS_KILL_AT="K fail X"     the K-th call is not made and fails with errno X; the same line
//   ... and CALL behind either       the K-th of these calls: how many others come before may differ from run to run
//
//   LONGHEADS_KILL_NO_URING=1        the system has no io_uring: pages are written by threads with plain
//   calls
//
// PHASE says where: `before` the call; `inside` it; `after` it; or `later`, X microseconds after it. Inside a
// write means that a share of its bytes is written and no more, X without its whole part (of writes by
// io_uring, which take their time, that a share is handed over); inside any other call that the call is made
// while a timer of X microseconds runs: it may or may not have done its work.
#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <mutex>
#include <string>

namespace {

struct Moment {
  long call = 0;  // 0: none
  char phase[16] = "";
  double x = 0;
  char only[24] = "";  // calls of this name count alone; empty: all
};

const char* LogPath() {
  static const char* const path = std::getenv("LONGHEADS_KILL_LOG");
  return path;
}

const Moment& Chosen() {
  static const Moment chosen = [] {
    Moment moment;
    const char* const text = std::getenv("LONGHEADS_KILL_AT");
    if (text != nullptr &&
        std::sscanf(text, "%ld %15s %lf %23s", &moment.call, moment.phase, &moment.x, moment.only) < 3) {
      std::fprintf(stderr, "LONGHEADS_KILL_AT is not 'K PHASE X' or 'K PHASE X CALL': %s\n", text);
      std::abort();
    }
    return moment;
  }();
  return chosen;
}

void WriteLog(const std::string& text, int flags) {
  using Open = int (*)(const char*, int, ...);
  static const auto real = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "open"));
  const int log = real(LogPath(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  if (log < 0 || write(log, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
  close(log);
}

// What was counted; written by the end of the process.
class Counted {
 public:
  long Add(const char* call, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (Chosen().only[0] != '\0' && std::strcmp(Chosen().only, call) != 0) return 0;
    if (Chosen().call == 0) lines_ += std::string(call) + " " + std::to_string(bytes) + "\n";
    return ++n_;
  }
  ~Counted() {
    if (LogPath() != nullptr && Chosen().call == 0) WriteLog(lines_, O_TRUNC);
  }

 private:
  std::mutex mutex_;
  long n_ = 0;
  std::string lines_;
};

long Count(const char* call, std::size_t bytes) {
  static Counted counted;
  return LogPath() != nullptr ? counted.Add(call, bytes) : 0;
}

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void DieIn(double microseconds) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer;
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(microseconds / 1e6);
  when.it_value.tv_nsec = static_cast<long>(microseconds * 1e3) % 1'000'000'000 + 1;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &when, nullptr) != 0) {
    std::abort();
  }
}

// Does a share of a call; empty for calls that have none.
using Part = std::function<void(double)>;

// Counts the call and makes it, or as much of it as is to be.
template <typename Whole>
auto Perform(const char* call, std::size_t bytes, const Whole& whole, const Part& part = {}) {
  const Moment& chosen = Chosen();
  const long k = Count(call, bytes);
  if (k == 0 || k != chosen.call) return whole();
  const std::string phase = chosen.phase;
  WriteLog(std::to_string(k) + " " + call + " " + phase + " " + std::to_string(bytes) + "\n", O_APPEND);
  if (phase == "before") Die();
  if (phase == "fail") {
    const int error = static_cast<int>(chosen.x);
    errno = error;
    return static_cast<decltype(whole())>(std::strcmp(call, "io_uring_submit") == 0 ? -error : -1);
  }
  if (phase == "inside") {
    if (part) {
      part(chosen.x - std::floor(chosen.x));
      Die();
    }
    DieIn(chosen.x);
    whole();
    for (;;) pause();
  }
  const auto result = whole();
  if (phase == "after") Die();
  DieIn(chosen.x);
  return result;
}

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

ssize_t WritePart(ssize_t (*real)(int, const void*, size_t, off_t), int file, const void* data, size_t size,
                  off_t offset) {
  const Part part = [&](double share) {
    auto n = static_cast<size_t>(share * static_cast<double>(size));
    // Direct I/O knows blocks alone.
    if (fcntl(file, F_GETFL) & O_DIRECT) n = n / 4096 * 4096;
    if (n > 0 && real(file, data, n, offset) < 0) std::abort();
  };
  return Perform(
      "pwrite", size, [&] { return real(file, data, size, offset); }, part);
}

}  // namespace

extern "C" {

ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  static auto* const real = Real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return WritePart(real, file, data, size, offset);
}

ssize_t pwrite64(int file, const void* data, size_t size, off64_t offset) {
  static auto* const real = Real<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  return WritePart(real, file, data, size, offset);
}

int fdatasync(int file) {
  static auto* const real = Real<int(int)>("fdatasync");
  return Perform("fdatasync", 0, [&] { return real(file); });
}

int fsync(int file) {
  static auto* const real = Real<int(int)>("fsync");
  return Perform("fsync", 0, [&] { return real(file); });
}

int ftruncate(int file, off_t size) noexcept {
  static auto* const real = Real<int(int, off_t)>("ftruncate");
  return Perform("ftruncate", 0, [&] { return real(file, size); });
}

int ftruncate64(int file, off64_t size) noexcept {
  static auto* const real = Real<int(int, off64_t)>("ftruncate64");
  return Perform("ftruncate", 0, [&] { return real(file, size); });
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = Real<int(const char*, const char*)>("rename");
  return Perform("rename", 0, [&] { return real(from, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  static auto* const real = Real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return Perform("renameat2", 0, [&] { return real(from_folder, from, to_folder, to, flags); });
}

int unlink(const char* path) noexcept {
  static auto* const real = Real<int(const char*)>("unlink");
  return Perform("unlink", 0, [&] { return real(path); });
}

int open(const char* path, int flags, ...) {
  static auto* const real = Real<int(const char*, int, ...)>("open");
  const bool creates = (flags & O_CREAT) != 0;
  mode_t mode = 0;
  if (creates || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if (!creates) return real(path, flags, mode);
  return Perform("open", 0, [&] { return real(path, flags, mode); });
}

int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  static auto* const real = Real<int(unsigned, io_uring*, unsigned)>("io_uring_queue_init");
  return std::getenv("LONGHEADS_KILL_NO_URING") != nullptr ? -EPERM : real(entries, ring, flags);
}

// Pages on their way by io_uring. Reads are not counted. Part of them: the kernel has the first ones and a
// piece of the next, and no time.
int io_uring_submit(io_uring* ring) {
  static auto* const real = Real<int(io_uring*)>("io_uring_submit");
  std::size_t bytes = 0;
  for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; ++i) {
    const io_uring_sqe& entry = ring->sq.sqes[i & *ring->sq.kring_mask];
    if (entry.opcode == IORING_OP_WRITE) bytes += entry.len;
  }
  if (bytes == 0) return real(ring);
  const auto part = [&](double share) {
    const double entries = share * (ring->sq.sqe_tail - ring->sq.sqe_head);
    const auto n_whole = static_cast<unsigned>(entries);
    io_uring_sqe& cut = ring->sq.sqes[(ring->sq.sqe_head + n_whole) & *ring->sq.kring_mask];
    cut.len =
        static_cast<unsigned>((entries - n_whole) * cut.len) / 4096 * 4096;  // direct I/O knows blocks alone
    ring->sq.sqe_tail = ring->sq.sqe_head + n_whole + (cut.len > 0 ? 1 : 0);
    real(ring);
  };
  return Perform(
      "io_uring_submit", bytes, [&] { return real(ring); }, part);
}

}  // extern "C"
