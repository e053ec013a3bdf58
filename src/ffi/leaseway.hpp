// The Leaseway client for C++17: leaseway.h with objects that free themselves and errors as exceptions.
//
//     leaseway::Client client("127.0.0.1:5100");
//     leaseway::Rate searches = client.rate("searches");
//     searches.wait();
//
// All objects can be moved. All member functions can be called by several threads at the same time.
#ifndef LEASEWAY_HPP
#define LEASEWAY_HPP

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "leaseway.h"

namespace leaseway {

// A failed call. `code` is one of the LEASEWAY_ codes.
class Error : public std::runtime_error {
  public:
    explicit Error(const leaseway_error& error) : std::runtime_error(error.message), code(error.code) {}

    const int32_t code;
};

// The timeout expired. Nothing was taken.
class Timeout : public Error {
  public:
    using Error::Error;
};

// The client was closed.
class Closed : public Error {
  public:
    using Error::Error;
};

// A charge exceeded the maximum debt. The part beyond it was not charged.
class DebtExceeded : public Error {
  public:
    using Error::Error;
};

// Settings as `key=value`, with the names of leaseway.h: {"wants=40", "window=60"}.
using Settings = std::vector<std::string>;

// Seconds; also takes std::chrono::milliseconds and the like.
using Seconds = std::chrono::duration<double>;

// Waits for as long as it takes.
constexpr Seconds FOREVER{INFINITY};

namespace detail {

inline void check(int32_t code, const leaseway_error& error) {
    switch (code) {
        case LEASEWAY_OK: return;
        case LEASEWAY_TIMEOUT: throw Timeout(error);
        case LEASEWAY_CLOSED: throw Closed(error);
        case LEASEWAY_DEBT_EXCEEDED: throw DebtExceeded(error);
        default: throw Error(error);
    }
}

// Calls `function` with the arguments and an error, which is thrown.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
    leaseway_error error{};
    check(function(arguments..., &error), error);
}

// As `call`, for functions that fail with LEASEWAY_NOT_NOW. Returns whether they did not.
template <typename Function, typename... Arguments>
bool try_call(Function function, Arguments... arguments) {
    leaseway_error error{};
    const int32_t code = function(arguments..., &error);
    if (code == LEASEWAY_NOT_NOW) return false;
    check(code, error);
    return true;
}

inline std::vector<const char*> pointers(const Settings& settings) {
    std::vector<const char*> pointers;
    for (const std::string& setting : settings) pointers.push_back(setting.c_str());
    pointers.push_back(nullptr);
    return pointers;
}

template <typename T, void (*free)(T*)>
struct Free {
    void operator()(T* handle) const { free(handle); }
};

template <typename T, void (*free)(T*)>
using Handle = std::unique_ptr<T, Free<T, free>>;

}  // namespace detail

// Permits of a gauge in use. They are returned when this is destroyed.
class Permit {
  public:
    // Returns the permits now.
    void release() { handle.reset(); }

  private:
    friend class Gauge;
    explicit Permit(leaseway_permit* permit) : handle(permit) {}
    detail::Handle<leaseway_permit, leaseway_permit_release> handle;
};

// Permits of a rate, for work whose cost is known only at its end. All count as used if it is not settled.
class Reservation {
  public:
    // Ends the reservation: `used` permits were used. Further calls do nothing.
    void settle(uint64_t used) {
        if (handle) detail::call(leaseway_reservation_settle, handle.release(), used);
    }

  private:
    friend class Rate;
    explicit Reservation(leaseway_reservation* reservation) : handle(reservation) {}
    detail::Handle<leaseway_reservation, leaseway_reservation_free> handle;
};

// Permits per second. Waiting callers are served first come, first served.
class Rate {
  public:
    // Takes `n` permits if they are available now.
    bool try_acquire(uint32_t n = 1) const { return detail::try_call(leaseway_rate_try_acquire, handle.get(), n); }

    // Waits for `n` permits. Throws Timeout, and has taken none then.
    void wait(uint32_t n = 1, Seconds timeout = FOREVER) const {
        detail::call(leaseway_rate_wait, handle.get(), n, timeout.count());
    }

    // Waits for `n` permits, for work whose cost is known only at its end.
    Reservation reserve(uint32_t n, Seconds timeout = FOREVER) const {
        leaseway_reservation* reservation = nullptr;
        detail::call(leaseway_rate_reserve, handle.get(), n, timeout.count(), &reservation);
        return Reservation(reservation);
    }

    // `n` permits, for `Client::limits`. It must not outlive this rate.
    leaseway_cost of(uint32_t n = 1) const { return {handle.get(), nullptr, nullptr, double(n)}; }

    // Charges `n` permits that were already used.
    void charge(uint64_t n) const { detail::call(leaseway_rate_charge, handle.get(), n); }

    // Returns the `n` permits taken last, because they were not used.
    void refund(uint64_t n) const { detail::call(leaseway_rate_refund, handle.get(), n); }

    // Sets the capacity to ask for, in permits per second.
    void set_wants(double wants) const { detail::call(leaseway_rate_set_wants, handle.get(), wants); }

    // The current state.
    leaseway_rate_state state() const {
        leaseway_rate_state state{};
        detail::call(leaseway_rate_look, handle.get(), &state);
        return state;
    }

  private:
    friend class Client;
    explicit Rate(leaseway_rate* rate) : handle(rate) {}
    detail::Handle<leaseway_rate, leaseway_rate_free> handle;
};

// Permits in use at the same time. Waiting callers are served first come, first served.
class Gauge {
  public:
    // Takes `n` permits if they are free now.
    std::optional<Permit> try_acquire(uint32_t n = 1) const {
        leaseway_permit* permit = nullptr;
        if (!detail::try_call(leaseway_gauge_try_acquire, handle.get(), n, &permit)) return std::nullopt;
        return Permit(permit);
    }

    // Waits for `n` permits. Throws Timeout, and has taken none then.
    Permit acquire(uint32_t n = 1, Seconds timeout = FOREVER) const {
        leaseway_permit* permit = nullptr;
        detail::call(leaseway_gauge_acquire, handle.get(), n, timeout.count(), &permit);
        return Permit(permit);
    }

    // `n` permits, for `Client::limits`. It must not outlive this gauge.
    leaseway_cost of(uint32_t n = 1) const { return {nullptr, handle.get(), nullptr, double(n)}; }

    // Sets the number of permits to ask for.
    void set_wants(double wants) const { detail::call(leaseway_gauge_set_wants, handle.get(), wants); }

    // The current state.
    leaseway_gauge_state state() const {
        leaseway_gauge_state state{};
        detail::call(leaseway_gauge_look, handle.get(), &state);
        return state;
    }

  private:
    friend class Client;
    explicit Gauge(leaseway_gauge* gauge) : handle(gauge) {}
    detail::Handle<leaseway_gauge, leaseway_gauge_free> handle;
};

// An amount of a budget, for work whose cost is known only at its end. If it is destroyed without being settled, all of
// it is spent.
class BudgetReservation {
  public:
    // Ends the reservation, because `used` was used: takes back what is left of it, or charges the excess. If `used` is
    // not an amount, this throws, and all of the reservation is spent. Further calls do nothing.
    void settle(double used) {
        if (handle) detail::call(leaseway_budget_reservation_settle, handle.release(), used);
    }

  private:
    friend class Budget;
    explicit BudgetReservation(leaseway_budget_reservation* reservation) : handle(reservation) {}
    detail::Handle<leaseway_budget_reservation, leaseway_budget_reservation_free> handle;
};

// An amount per period, which all clients together never overspend. Callers are served first come, first served.
// Amounts are numbers from 0 to 1e15.
class Budget {
  public:
    // Spends an amount if the allowance covers it now. Asks for more in the background if it does not.
    bool try_spend(double amount) const { return detail::try_call(leaseway_budget_try_spend, handle.get(), amount); }

    // Waits until the allowance covers an amount, and spends it. Throws Timeout, and has spent nothing then.
    void spend(double amount, Seconds timeout = FOREVER) const {
        detail::call(leaseway_budget_spend, handle.get(), amount, timeout.count());
    }

    // Waits as `spend` does, for work whose cost is known only at its end.
    BudgetReservation reserve(double amount, Seconds timeout = FOREVER) const {
        leaseway_budget_reservation* reservation = nullptr;
        detail::call(leaseway_budget_reserve, handle.get(), amount, timeout.count(), &reservation);
        return BudgetReservation(reservation);
    }

    // Reserves an amount if the allowance covers it now.
    std::optional<BudgetReservation> try_reserve(double amount) const {
        leaseway_budget_reservation* reservation = nullptr;
        if (!detail::try_call(leaseway_budget_try_reserve, handle.get(), amount, &reservation)) return std::nullopt;
        return BudgetReservation(reservation);
    }

    // An amount, for `Client::limits`. It must not outlive this budget.
    leaseway_cost of(double amount) const { return {nullptr, nullptr, handle.get(), amount}; }

    // Spends an amount that was used already. What the allowance does not cover is owed: the next allowances pay it
    // before any caller can spend.
    void charge(double amount) const { detail::call(leaseway_budget_charge, handle.get(), amount); }

    // What was charged and is not covered by an allowance yet.
    double owed() const { return state().owed; }

    // What may be spent now, without asking the server.
    double left() const { return state().left; }

    // The current state: the allowance, what is left, spent and owed, and the period.
    leaseway_budget_state state() const {
        leaseway_budget_state state{};
        detail::call(leaseway_budget_look, handle.get(), &state);
        return state;
    }

  private:
    friend class Client;
    explicit Budget(leaseway_budget* budget) : handle(budget) {}
    detail::Handle<leaseway_budget, leaseway_budget_free> handle;
};

// What an operation costs at one limit, for `Client::limits`. Made by `Rate::of`, `Gauge::of` and `Budget::of`.
using Cost = leaseway_cost;

// Permits of several limits. Those of gauges are returned when this is destroyed; those of rates are used up, and
// amounts of budgets are spent.
class Permits {
  public:
    // Returns the permits now.
    void release() { handle.reset(); }

  private:
    friend class Limits;
    explicit Permits(leaseway_permits* permits) : handle(permits) {}
    detail::Handle<leaseway_permits, leaseway_permits_release> handle;
};

// Permits and amounts of several limits, for work whose cost is known only at its end. Everything counts as used if it
// is not settled.
class Reservations {
  public:
    // Ends the reservation: `used[i]` was used of limit i. Further calls do nothing.
    void settle(const std::vector<double>& used) {
        if (handle) detail::call(leaseway_reservations_settle, handle.release(), used.data(), used.size());
    }

  private:
    friend class Limits;
    explicit Reservations(leaseway_reservations* reservations) : handle(reservations) {}
    detail::Handle<leaseway_reservations, leaseway_reservations_free> handle;
};

// A limit that refuses: nothing was taken from any of them.
using Refusal = leaseway_refusal;

// Several limits. A caller takes the permits and amounts of all of them, or nothing. Numbers are whole for rates and
// gauges.
class Limits {
  public:
    // The same limits with other numbers of permits and amounts, one for each.
    Limits with_permits(const std::vector<double>& numbers) const {
        leaseway_limits* limits = nullptr;
        detail::call(leaseway_limits_with_permits, handle.get(), numbers.data(), numbers.size(), &limits);
        return Limits(limits);
    }

    // Takes all permits and amounts if they are available now. Otherwise `refusal`, if given, says which limit
    // refuses.
    std::optional<Permits> try_acquire(Refusal* refusal = nullptr) const {
        leaseway_permits* permits = nullptr;
        if (!detail::try_call(leaseway_limits_try_acquire, handle.get(), &permits, refusal)) return std::nullopt;
        return Permits(permits);
    }

    // Waits for the permits of all limits. Throws Timeout, and has taken none then.
    Permits acquire(Seconds timeout = FOREVER) const {
        leaseway_permits* permits = nullptr;
        detail::call(leaseway_limits_acquire, handle.get(), timeout.count(), &permits);
        return Permits(permits);
    }

    // Waits for the permits of all limits, for work whose cost is known only at its end.
    Reservations reserve(Seconds timeout = FOREVER) const {
        leaseway_reservations* reservations = nullptr;
        detail::call(leaseway_limits_reserve, handle.get(), timeout.count(), &reservations);
        return Reservations(reservations);
    }

    // Charges each rate and budget for what was already used. The numbers of gauges are ignored.
    void charge(const std::vector<double>& numbers) const {
        detail::call(leaseway_limits_charge, handle.get(), numbers.data(), numbers.size());
    }

    // Returns to each rate the permits taken last, because they were not used. The numbers of gauges and budgets are
    // ignored.
    void refund(const std::vector<double>& numbers) const {
        detail::call(leaseway_limits_refund, handle.get(), numbers.data(), numbers.size());
    }

  private:
    friend class Client;
    explicit Limits(leaseway_limits* limits) : handle(limits) {}
    detail::Handle<leaseway_limits, leaseway_limits_free> handle;
};

// Keeps leases alive in a thread of its own. When it is destroyed, its leases are released in the background once its
// rates, gauges and budgets are destroyed, too; `close` waits for that.
class Client {
  public:
    // `servers` are HOST:PORT, separated by commas. An unreachable server is not an error: see `health`.
    explicit Client(const std::string& servers, Settings settings = {}) {
        settings.push_back("servers=" + servers);
        open(settings);
    }

    // Reads the servers and the security settings from LEASEWAY_SERVER and the other variables of `leaseway get`.
    static Client from_env(Settings settings = {}) {
        settings.push_back("env=true");
        return Client(std::move(settings));
    }

    // Opens a rate: permits per second.
    Rate rate(const std::string& resource, const Settings& settings = {}) const {
        leaseway_rate* rate = nullptr;
        const auto pointers = detail::pointers(settings);
        detail::call(leaseway_rate_open, handle.get(), resource.c_str(), pointers.data(), &rate);
        return Rate(rate);
    }

    // Opens a gauge: permits in use at the same time.
    Gauge gauge(const std::string& resource, const Settings& settings = {}) const {
        leaseway_gauge* gauge = nullptr;
        const auto pointers = detail::pointers(settings);
        detail::call(leaseway_gauge_open, handle.get(), resource.c_str(), pointers.data(), &gauge);
        return Gauge(gauge);
    }

    // Opens a budget: an amount per period.
    Budget budget(const std::string& resource) const {
        leaseway_budget* budget = nullptr;
        detail::call(leaseway_budget_open, handle.get(), resource.c_str(), &budget);
        return Budget(budget);
    }

    // Combines several limits: {tokens.of(900), connections.of(), dollars.of(0.25)}.
    Limits limits(const std::vector<Cost>& costs) const {
        leaseway_limits* limits = nullptr;
        detail::call(leaseway_limits_open, handle.get(), costs.data(), costs.size(), &limits);
        return Limits(limits);
    }

    // Waits until every open resource has its first lease. The error names those without one, and the reason.
    void ready(Seconds timeout) const { detail::call(leaseway_client_ready, handle.get(), timeout.count()); }

    // The state of the connection to the servers.
    leaseway_health health() const {
        leaseway_health health{};
        detail::call(leaseway_client_health, handle.get(), &health);
        return health;
    }

    // Releases all leases. Waits until that is done or has failed once. Waiting callers get Closed.
    void close(Seconds timeout = Seconds(5)) const {
        detail::call(leaseway_client_close, handle.get(), timeout.count());
    }

  private:
    explicit Client(Settings settings) { open(settings); }

    void open(const Settings& settings) {
        leaseway_client* client = nullptr;
        const auto pointers = detail::pointers(settings);
        detail::call(leaseway_client_open, pointers.data(), &client);
        handle.reset(client);
    }

    detail::Handle<leaseway_client, leaseway_client_free> handle;
};

}  // namespace leaseway

#endif  // LEASEWAY_HPP
