//! `leaseway up --demo llm`: a server, three gateways in front of a mock language model, and a page that shows how teams
//! share its tokens, all in this process.
//!
//! A gateway limits the calls of each team with a lease of its own, under the client id TEAM/gateway-N. The cluster divides
//! the tokens between the teams first, then between the gateways of a team.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use leaseway_client::{Client, Rate, limiter::Burst};
use leaseway_server::{AccessOptions, Options, Server, Skew, TlsOptions, config::limits::Limits};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    time::{Instant, sleep, timeout},
};

use crate::Outcome;
use crate::error::CliError;
use crate::output::print;

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Demo {
    /// Teams that share the tokens of a language model
    Llm,
}

const PAGE: &str = include_str!("demo.html");
const CONFIG: &str = include_str!("demo.yaml");

/// The limit in [`CONFIG`], in tokens per second.
const CAPACITY: f64 = 1_000.0;
const GATEWAYS: usize = 3;
/// Unused tokens are saved for this long, so that a call can be paid at once.
const SAVED: Duration = Duration::from_secs(5);
/// The most tokens that a call may use. They are reserved.
const MAX_TOKENS: u32 = 400;
/// How long a call waits for tokens, or for the first lease of an idle team.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time over which the page shows usage.
const SHOWN: Duration = Duration::from_secs(10);
/// Teams, and the tokens per second that they want at first.
const TEAMS: [(&str, u64); 3] = [("research", 1_500), ("support", 400), ("batch", 0)];
/// The largest demand of a team, in tokens per second.
const MAX_DEMAND: u64 = 5_000;
/// The page, unless it is in use.
const ADDRESS: &str = "127.0.0.1:5180";

/// A team, and its leases at the gateways.
struct Team {
    name: &'static str,
    rates: Vec<Rate>,
    /// Simulated demand in tokens per second.
    demand: AtomicU64,
    /// Tokens of the last calls.
    used: Mutex<VecDeque<(Instant, u64)>>,
    refused: AtomicU64,
}

struct Model {
    teams: Vec<Team>,
    /// The next call goes to this gateway.
    next: AtomicUsize,
    /// The clients keep the leases.
    _clients: Vec<Client>,
}

/// The answer to a call: the gateway, and the tokens that it used or the time after which to retry.
struct Called {
    gateway: usize,
    outcome: Result<u64, Duration>,
}

impl Model {
    fn start(server: SocketAddr) -> Result<Model, CliError> {
        let mut clients = Vec::new();
        let mut open = |team: &str, gateway: usize| -> Result<Rate, CliError> {
            let id = format!("{team}/gateway-{}", gateway + 1);
            let failed = |error: &dyn std::fmt::Display| CliError::Flags(error.to_string());
            let client =
                Client::builder().endpoints([server.to_string()]).id(id).build().map_err(|error| failed(&error))?;
            let rate = client.resource("tokens").burst(Burst::Window(SAVED)).rate().map_err(|error| failed(&error))?;
            clients.push(client);
            Ok(rate)
        };
        let mut teams = Vec::new();
        for (name, demand) in TEAMS {
            let rates = (0..GATEWAYS).map(|gateway| open(name, gateway)).collect::<Result<_, _>>()?;
            let (demand, used, refused) = (AtomicU64::new(demand), Mutex::default(), AtomicU64::new(0));
            teams.push(Team { name, rates, demand, used, refused });
        }
        Ok(Model { teams, next: AtomicUsize::new(0), _clients: clients })
    }

    fn team(&self, name: &str) -> Option<&Team> {
        self.teams.iter().find(|team| team.name == name)
    }

    /// A call through the next gateway: reserves the most that it may cost, asks the model, and settles what it did cost.
    async fn call(&self, team: &Team) -> Called {
        let gateway = self.next.fetch_add(1, Ordering::Relaxed) % GATEWAYS;
        let rate = &team.rates[gateway];
        let Ok(Ok(reservation)) = timeout(PATIENCE, rate.reserve(MAX_TOKENS)).await else {
            team.refused.fetch_add(1, Ordering::Relaxed);
            let retry_after = rate.ready_in(MAX_TOKENS).unwrap_or(Duration::from_secs(1));
            return Called { gateway, outcome: Err(retry_after) };
        };
        let used = think().await;
        // The model never uses more than is reserved, so there is no debt.
        let _ = reservation.settle(used);
        team.note(used);
        Called { gateway, outcome: Ok(used) }
    }

    fn state(&self) -> Value {
        let teams: Vec<Value> = self.teams.iter().map(Team::state).collect();
        json!({ "capacity": CAPACITY, "max_demand": MAX_DEMAND, "teams": teams })
    }
}

/// The mock model: takes a while, and uses a random number of tokens.
async fn think() -> u64 {
    let random = fastrand::u64(0..=u64::from(MAX_TOKENS) / 2);
    sleep(Duration::from_millis(100 + random)).await;
    u64::from(MAX_TOKENS) / 2 + random
}

impl Team {
    fn note(&self, tokens: u64) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).push_back((Instant::now(), tokens));
    }

    /// Tokens used per second.
    fn usage(&self) -> f64 {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while used.front().is_some_and(|(at, _)| at.elapsed() > SHOWN) {
            used.pop_front();
        }
        used.iter().map(|(_, tokens)| *tokens).sum::<u64>() as f64 / SHOWN.as_secs_f64()
    }

    fn state(&self) -> Value {
        let leases: Vec<f64> = self.rates.iter().map(|rate| rate.standing().capacity.get()).collect();
        json!({
            "team": self.name,
            "demand": self.demand.load(Ordering::Relaxed),
            "used": self.usage(),
            "refused": self.refused.load(Ordering::Relaxed),
            "leases": leases,
        })
    }
}

/// Makes the calls of a team, as many as its demand takes.
async fn run_load(model: Arc<Model>, team: usize) {
    const TICK: Duration = Duration::from_millis(50);
    const MEAN: f64 = MAX_TOKENS as f64 * 0.75;
    loop {
        sleep(TICK).await;
        let mut calls = model.teams[team].demand.load(Ordering::Relaxed) as f64 * TICK.as_secs_f64() / MEAN;
        while calls > fastrand::f64() {
            calls -= 1.0;
            let model = Arc::clone(&model);
            tokio::spawn(async move { model.call(&model.teams[team]).await });
        }
    }
}

#[derive(Deserialize)]
struct SetDemand {
    team: String,
    tokens: u64,
}

async fn set_demand(State(model): State<Arc<Model>>, Query(set): Query<SetDemand>) -> Response {
    match model.team(&set.team) {
        Some(team) => {
            team.demand.store(set.tokens.min(MAX_DEMAND), Ordering::Relaxed);
            Json(team.state()).into_response()
        }
        None => no_team(),
    }
}

fn no_team() -> Response {
    let teams: Vec<&str> = TEAMS.iter().map(|(name, _)| *name).collect();
    (StatusCode::NOT_FOUND, format!("unknown team; teams: {}\n", teams.join(", "))).into_response()
}

/// A call in the form of OpenAI, with the team in the header `x-team`.
async fn complete(State(model): State<Arc<Model>>, headers: HeaderMap) -> Response {
    let name = headers.get("x-team").and_then(|name| name.to_str().ok()).unwrap_or_default();
    let Some(team) = model.team(name) else { return no_team() };
    let Called { gateway, outcome } = model.call(team).await;
    let gateway = format!("gateway-{}", gateway + 1);
    match outcome {
        Ok(tokens) => Json(json!({
            "object": "chat.completion",
            "model": "mock",
            "gateway": gateway,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello!"}}],
            "usage": {"total_tokens": tokens},
        }))
        .into_response(),
        Err(retry_after) => {
            let seconds = retry_after.as_secs_f64().ceil().max(1.0).to_string();
            let error = json!({"error": {"type": "rate_limit", "message": format!("team {name} has used up its \
                                                                                   tokens at {gateway}")}});
            (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, seconds)], Json(error)).into_response()
        }
    }
}

fn options(config: PathBuf) -> Options {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    Options {
        listen: anywhere,
        http: anywhere,
        config: Some(config),
        id: Some("demo".to_owned()),
        advertise: None,
        threads: Some(1),
        limits: Limits::default(),
        peers: None,
        admin: None,
        parent: None,
        access: AccessOptions::default(),
        tls: TlsOptions::default(),
        skew: Skew { offset_ms: 0, rate: 1.0 },
        extra_listeners: Vec::new(),
        extra_readiness: None,
    }
}

/// Runs until the process is asked to stop.
pub(super) fn run(demo: Demo) -> Outcome {
    let Demo::Llm = demo;
    leaseway_server::block_on(async {
        let config = std::env::temp_dir().join(format!("leaseway-demo-{}.yaml", std::process::id()));
        std::fs::write(&config, CONFIG).map_err(CliError::Runtime)?;
        let started = Server::start(options(config.clone())).await;
        // The server has read it.
        let _ = std::fs::remove_file(&config);
        let mut server = started?;
        let listener = match TcpListener::bind(ADDRESS).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(("127.0.0.1", 0)).await.map_err(CliError::Runtime)?,
        };
        let page = listener.local_addr().map_err(CliError::Runtime)?;
        let model = Arc::new(Model::start(server.addresses().grpc)?);
        (0..TEAMS.len()).for_each(|team| drop(tokio::spawn(run_load(Arc::clone(&model), team))));
        let routes = Router::new()
            .route("/", get(|| async { Html(PAGE) }))
            .route("/state", get(|State(model): State<Arc<Model>>| async move { Json(model.state()) }))
            .route("/demand", post(set_demand))
            .route("/v1/chat/completions", post(complete))
            .with_state(Arc::clone(&model));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let http = server.addresses().http;
        print(format_args!(
            "three gateways in front of a mock model share {} tokens per minute between three teams\n  look:     http://{page}/\n  call it:  curl -X POST -H 'x-team: batch' http://{page}/v1/chat/completions\n  cluster:  http://{http}/",
            CAPACITY * 60.0
        ))?;
        server.serve_until_stopped().await;
        Ok(server.stop().await?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_the_capacity_of_the_page() {
        let read = leaseway_server::config::parse("demo.yaml", CONFIG).expect("valid");
        let tokens = read.repository.find("tokens").expect("a template");
        assert_eq!(tokens.settings.capacity.get(), CAPACITY);
    }
}
