// The program itself, told to stop while it is at work.
#include "sape2/io/model_file.h"

#include "serve/served.h"
#include "support/own_time.h"
#include "support/scratch_folder.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <vector>

namespace sape2::serve::test {
namespace {

using namespace sape2::testing;

/// `sape2 serve MODEL` as a process.
class Program {
 public:
  explicit Program(const std::string& model) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      ::setenv("OMP_NUM_THREADS", "1", 1);
      ::execl(SAPE2_PROGRAM, SAPE2_PROGRAM, "serve", model.c_str(), "--data", "shapes", "--port",
              "0", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ends[0];
    while (words_.find(")\n") == std::string::npos && read_more()) {
    }
    const std::size_t begin = words_.find("127.0.0.1:");
    if (begin != std::string::npos) port_ = std::stoi(words_.substr(begin + 10));
  }
  ~Program() {
    ::close(out_);
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int port() const { return port_; }
  struct End {
    int exit_code = -1;  ///< −1: ended otherwise
    double seconds = 0, wall_seconds = 0;
  };
  End end_with(int signal) {
    const OwnTime time(process_);
    ::kill(process_, signal);
    while (read_more()) {
    }
    siginfo_t ended;
    ::waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOWAIT);
    const double seconds = time.seconds(), wall_seconds = time.wall_seconds();
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, seconds, wall_seconds};
  }

 private:
  bool read_more() {
    char buffer[1024];
    const ssize_t count = ::read(out_, buffer, sizeof buffer);
    if (count > 0) words_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }

  pid_t process_ = 0;
  int out_ = -1, port_ = 0;
  std::string words_;
};

// One layer of this model, on the largest grid, takes longer than a stop may.
TEST(Stop, ComesInTwoSecondsWhateverIsUnderWay) {
  const ScratchFolder folder;
  nn::ModelConfig config;
  config.vit.depth = 1;
  config.vit.width = 768;
  config.vit.heads = 12;
  config.vit.mlp_ratio = 32;
  config.encoding = nn::EncodingSpec::parse("rope2d");
  io::save_model(folder / "large.safetensors", nn::ViT(config));
  for (const int signal : {SIGTERM, SIGINT}) {
    Program program((folder / "large.safetensors").native());
    ASSERT_GT(program.port(), 0);
    std::vector<std::unique_ptr<RawClient>> waiting;
    for (int i = 0; i < 10; ++i) {
      waiting.push_back(std::make_unique<RawClient>(program.port()));
      waiting.back()->send(
          "GET /api/figure?model=0&what=attention&size=256&image=data:" + std::to_string(i) +
          " HTTP/1.1\r\nHost: localhost:" + std::to_string(program.port()) + "\r\n\r\n");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const Program::End end = program.end_with(signal);
    EXPECT_EQ(end.exit_code, 0);
    EXPECT_LT(end.seconds, kLongestStop);
    EXPECT_LT(end.wall_seconds, kLongestStopAnywhere);
    std::printf("stopped in %.2f s (%.2f s without other programs)\n", end.wall_seconds,
                end.seconds);
  }
}

}  // namespace
}  // namespace sape2::serve::test
