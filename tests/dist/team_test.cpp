#include "sape2/dist/team.h"

#include "sape2/dist/group.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>
#include <vector>

// Ranks are threads here: a team keeps nothing that threads of a process would share.
namespace sape2::dist {
namespace {

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

constexpr Patience kShort{.join = 20, .silence = 8, .exchange = 3};

// What each rank threw; "" for those that did not.
std::vector<std::string> as_ranks(int size, Loss loss, const std::function<void(Team&)>& work,
                                  const Patience& patience = kShort) {
  const int port = free_port();
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const Place place{.rank = rank,
                      .size = size,
                      .local_rank = rank,
                      .local_size = size,
                      .address = "127.0.0.1",
                      .port = port,
                      .launcher = "test"};
    ranks.push_back(std::async(std::launch::async, [=]() -> std::string {
      try {
        const auto team = Team::join(place, patience, loss);
        try {
          work(*team);
          team->leave();
        } catch (const std::exception& error) {
          team->give_up(error.what());
          throw;
        }
        return "";
      } catch (const std::exception& error) {
        return error.what();
      }
    }));
  }
  std::vector<std::string> said;
  for (auto& rank : ranks) said.push_back(rank.get());
  return said;
}

TEST(Team, TextsAreSeenByAll) {
  const auto said = as_ranks(3, Loss::ends_all, [](Team& team) {
    if (team.leads()) team.put("greeting", "hello");
    if (team.await("greeting") != "hello") throw Error("another text");
    if (team.find("nothing")) throw Error("found what nobody put");
    const std::string self = std::to_string(team.rank());
    team.put("won/" + self, team.replace("prize", "", self) ? "1" : "0");
    int winners = 0;
    for (int rank = 0; rank < 3; ++rank) {
      winners += team.await("won/" + std::to_string(rank)) == "1";
    }
    if (winners != 1) throw Error("one must win, not " + std::to_string(winners));
  });
  for (const std::string& text : said) EXPECT_EQ(text, "");
}

TEST(Team, OneThatGivesUpEndsAllWithItsReason) {
  const auto said = as_ranks(3, Loss::ends_all, [](Team& team) {
    if (team.rank() == 1) throw Error("the disk is full");
    team.await("what never comes");
  });
  EXPECT_EQ(said[1], "the disk is full");
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(said[rank].starts_with("rank 1 (host ")) << said[rank];
    EXPECT_TRUE(said[rank].ends_with(" has ended: the disk is full")) << said[rank];
  }
}

TEST(Team, OneThatDoesNotComeToAnExchangeIsNamed) {
  const auto said = as_ranks(3, Loss::ends_all, [](Team& team) {
    team.count_exchange();
    if (team.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::seconds(7));
      return team.check();
    }
    team.count_exchange();
    team.await("what never comes");
  });
  for (const std::string& text : said) {
    EXPECT_TRUE(text.starts_with("rank 2 ")) << text;
    EXPECT_NE(text.find("hangs: the others have waited for it for 3 s"), std::string::npos) << text;
  }
}

TEST(Team, SaysWhoIsMissing) {
  Patience patience = kShort;
  patience.join = 2;
  const int port = free_port();
  const Place place{.rank = 0, .size = 3, .address = "127.0.0.1", .port = port};
  try {
    Team::join(place, patience, Loss::ends_all);
    FAIL() << "nobody else came";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("within 2 s; missing: rank 1, 2"), std::string::npos)
        << error.what();
  }
}

// One sentence, however many were announced.
TEST(Team, NamesTheFirstOfManyThatAreMissing) {
  Patience patience = kShort;
  patience.join = 1;
  const Place place{.rank = 0, .size = 20, .address = "127.0.0.1", .port = free_port()};
  try {
    Team::join(place, patience, Loss::ends_all);
    FAIL() << "nobody else came";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).ends_with("rank 1, 2, 3, 4, 5, 6, 7, 8 and 11 more"))
        << error.what();
  }
}

TEST(Team, WaitsForNumbersOfSecondsOnly) {
  for (const char* value : {"0", "-1", "nan", "inf", "1e300", "2 s", ""}) {
    ::setenv("SAPE2_JOIN_SECONDS", value, 1);
    EXPECT_THROW(Patience::from_environment(), Error) << value;
  }
  ::setenv("SAPE2_JOIN_SECONDS", "2.5", 1);
  EXPECT_EQ(Patience::from_environment().join, 2.5);
  ::unsetenv("SAPE2_JOIN_SECONDS");
}

TEST(Team, ARankMayBeTakenOnce) {
  const int port = free_port();
  std::vector<std::future<std::string>> ranks;
  for (const int rank : {0, 1, 1}) {
    const Place place{
        .rank = rank, .size = 2, .local_size = 2, .address = "127.0.0.1", .port = port};
    ranks.push_back(std::async(std::launch::async, [=]() -> std::string {
      try {
        const auto team = Team::join(place, kShort, Loss::ends_all);
        std::this_thread::sleep_for(std::chrono::seconds(1));
        team->leave();
        return "";
      } catch (const std::exception& error) {
        return error.what();
      }
    }));
  }
  int refused = 0;
  for (auto& rank : ranks) {
    const std::string text = rank.get();
    refused += text.find("are rank 1; each needs a rank of its own") != std::string::npos;
  }
  EXPECT_EQ(refused, 1);
}

TEST(Group, SumsAndBroadcastsAreTheSameOnEveryRank) {
  if (!support_for(at::kCPU).present) GTEST_SKIP() << "this LibTorch has no Gloo";
  const auto said = as_ranks(4, Loss::ends_all, [](Team& team) {
    Group group(team, at::kCPU);
    const at::Tensor ones = at::full({1000}, team.rank() + 1.0F);
    const at::Tensor counts = at::full({3}, team.rank(), at::kLong);
    auto first = group.begin_sum(ones), second = group.begin_sum(counts);
    second.wait();
    first.wait();
    if (!ones.eq(10).all().item<bool>()) throw Error("the sum is not 10");
    if (!counts.eq(6).all().item<bool>()) throw Error("the sum is not 6");
    const at::Tensor own = at::full({2}, 7.0 * team.rank() + 1, at::kDouble);
    group.broadcast(own);
    if (!own.eq(1).all().item<bool>()) throw Error("not the value of rank 0");
  });
  for (const std::string& text : said) EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace sape2::dist
