#include "common/ending.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace pytrace {
namespace {

// Never destroyed: threads use them until the process is gone.
std::mutex& ending() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

std::mutex& words_are_used() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

std::string& last_words() {
  static auto* const words = new std::string;
  return *words;
}

void say(const std::string& text) {
  const char* at = text.data();
  size_t left = text.size();
  while (left > 0) {
    const ssize_t written = write(STDERR_FILENO, at, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    at += written;
    left -= static_cast<size_t>(written);
  }
}

// The processes that the kernel lists, each with its parent; none where there is no /proc.
std::vector<std::pair<pid_t, pid_t>> processes_and_parents() {
  std::vector<std::pair<pid_t, pid_t>> found;
  DIR* const folder = opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    const auto process = static_cast<pid_t>(std::atol(entry->d_name));
    if (process <= 0) continue;
    std::ifstream file("/proc/" + std::string(entry->d_name) + "/stat");
    std::string line;
    std::getline(file, line);
    // "pid (name) state parent …", where the name may hold spaces and brackets.
    const size_t name_ends = line.rfind(')');
    if (name_ends == std::string::npos) continue;
    std::istringstream rest(line.substr(name_ends + 1));
    std::string state;
    pid_t parent = 0;
    if (rest >> state >> parent) found.emplace_back(process, parent);
  }
  closedir(folder);
  return found;
}

void end_descendants() {
  const auto processes = processes_and_parents();
  std::vector<pid_t> found{getpid()};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const auto& [process, parent] : processes) {
      if (parent == found[i]) found.push_back(process);
    }
  }
  for (size_t i = 1; i < found.size(); ++i) kill(found[i], SIGKILL);
}

[[noreturn]] void watch(int descriptor, std::chrono::duration<double> patience) {
  while (true) {
    unsigned char signal = 0;
    const ssize_t count = read(descriptor, &signal, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count != 1) pthread_exit(nullptr);
    if (signal != SIGINT && signal != SIGTERM) continue;
    std::this_thread::sleep_for(patience);
    end_now(signal);
  }
}

}  // namespace

void end_on_signals(int descriptor, double seconds) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(watch, descriptor, std::chrono::duration<double>(seconds)).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void set_last_words(std::string words) {
  const std::lock_guard<std::mutex> lock(words_are_used());
  last_words() = std::move(words);
}

void end_now(int signal) {
  ending().lock();  // never unlocked
  std::string line = std::string("pytrace: ") + (signal == SIGTERM ? "terminated" : "interrupted");
  {
    const std::lock_guard<std::mutex> lock(words_are_used());
    line += last_words();
  }
  // Whatever was drawn on a terminal is left in the middle of it, the cursor hidden perhaps.
  const std::string clean = isatty(STDERR_FILENO) != 0 ? "\r\x1b[2K\x1b[?25h" : "";
  say(clean + line + "\n");
  end_descendants();
  _exit(128 + signal);
}

void end_quietly_on_signal(int signal) {
  struct sigaction action{};
  action.sa_handler = [](int number) { _exit(128 + number); };
  sigaction(signal, &action, nullptr);
}

}  // namespace pytrace
