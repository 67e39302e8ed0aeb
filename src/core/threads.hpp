// Threads of the core's own, and a way out of long calls.
//
// `Workers` is the calling thread and, if they are free, threads of one pool that is created when
// first used. Tasks are numbered; any thread may take any task, so results must not depend on who
// does what: write to places of the task's own and add up afterwards, in order.
#pragma once

#include <chrono>
#include <cstddef>
#include <type_traits>

namespace drolearn {

class Pool;

class Workers {
  public:
    // Asked from time to time by the calling thread: false asks for an end.
    using Check = bool (*)();

    // At most `threads` threads. Whoever finds the pool in use works alone.
    explicit Workers(int threads = 1, Check check = nullptr);
    ~Workers();
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    // Calls body(task) for all tasks; false if it was interrupted.
    template <class Body>
    bool run(std::size_t tasks, Body&& body) {
        if (!pool_ || tasks < 2) {
            for (std::size_t task = 0; task < tasks; ++task) {
                if (!poll()) return false;
                body(task);
            }
            return true;
        }
        return share(
            tasks,
            [](void* context, std::size_t task) {
                (*static_cast<std::remove_reference_t<Body>*>(context))(task);
            },
            const_cast<void*>(static_cast<const void*>(&body)));
    }

    // Whether to go on. Costs a look at the clock; asks the check every 20 ms.
    bool poll() {
        if (!check_ || interrupted_) return !interrupted_;
        const auto now = Clock::now();
        if (now < next_check_) return true;
        interrupted_ = !check_();
        next_check_ = Clock::now() + std::chrono::milliseconds(20);
        return !interrupted_;
    }

  private:
    using Clock = std::chrono::steady_clock;

    bool share(std::size_t tasks, void (*body)(void*, std::size_t), void* context);

    Pool* pool_ = nullptr;  // held, unless this thread works alone
    int helpers_ = 0;
    Check check_ = nullptr;
    Clock::time_point next_check_{};
    bool interrupted_ = false;
};

}  // namespace drolearn
