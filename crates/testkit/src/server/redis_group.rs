//! A group of Redis processes that are connected with each other, any of which can be cut off.

use std::{io, path::PathBuf, time::Duration};

use tempfile::TempDir;

use super::{
    cluster::{Member, poll_for},
    directory::scratch,
    node::Node,
    proxy::Proxy,
    redirect::Redirect,
    redis_node::RedisNode,
    redis_wire::{RedisAnswer, RedisConnection},
};

/// How long the processes may take to agree. With the default timing they need some seconds. A busy machine may need
/// more than 30 s: a Sentinel that did not run for two seconds is then inactive for 30 s.
const STABLE_LIMIT: Duration = Duration::from_secs(120);
/// The time limit of a query. A query without an answer is repeated.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit of a command. A command is sent only once.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A group of Redis processes. Clients use the processes' own ports; the connections between processes go through
/// proxies.
pub(super) struct RedisGroup {
    links: Vec<Link>,
    /// Pairs of members between which nothing passes. Members that are cut off from all others are not in this list.
    cut_pairs: Vec<[usize; 2]>,
    processes: Vec<RedisProcess>,
    redirect_library: PathBuf,
    #[cfg_attr(
        not(feature = "tls"),
        expect(dead_code, reason = "only certificates are looked for there; it lives as long as the group")
    )]
    directory: TempDir,
}

/// A process of the group: a Redis or a Sentinel.
struct RedisProcess {
    member: Member<RedisNode>,
    password: Option<String>,
    /// The ports for other members: its own port, and in a cluster the bus port.
    ports: Vec<u16>,
}

/// The connections from one member to one port of another, which go through a proxy.
struct Link {
    from: usize,
    to: usize,
    port: u16,
    proxy: Proxy,
}

impl RedisGroup {
    /// A group without members.
    pub(super) fn new() -> Self {
        let directory = scratch();
        let redirect_library = Redirect::build(directory.path());
        let (links, cut_pairs, processes) = (Vec::new(), Vec::new(), Vec::new());
        Self { links, cut_pairs, processes, redirect_library, directory }
    }

    /// Adds a process that is not started yet and has these ports beside its own, and returns its index.
    pub(super) fn add_node(&mut self, mut node: RedisNode, password: Option<&str>, ports: &[u16]) -> usize {
        let index = self.processes.len();
        node.add_redirect(&self.redirect_library);
        let ports = std::iter::once(node.port).chain(ports.iter().copied()).collect();
        let password = password.map(str::to_owned);
        self.processes.push(RedisProcess { member: Member::new(node), password, ports });
        for other in 0..index {
            self.add_links(index, other);
            self.add_links(other, index);
            self.redirect_to_proxies(other);
        }
        self.redirect_to_proxies(index);
        self.update_links();
        index
    }

    /// Lets the others reach a member by one more port, which the member announces as its own port.
    pub(super) fn add_announced_port(&self, member: usize, port: u16) {
        let own_port = self.port(member);
        for other in self.indices().filter(|other| *other != member) {
            let announced_route =
                self.routes(other).find(|(known, _)| *known == own_port).map(|(_, proxy)| (port, proxy));
            self.set_redirect(other, self.routes(other).chain(announced_route));
        }
    }

    /// The group's directory.
    #[cfg(feature = "tls")]
    pub(super) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// The number of members.
    pub(super) const fn len(&self) -> usize {
        self.processes.len()
    }

    pub(super) fn indices(&self) -> std::ops::Range<usize> {
        0..self.processes.len()
    }

    /// The port of a member for clients.
    pub(super) fn port(&self, member: usize) -> u16 {
        self.node(member).port
    }

    /// The ports of a member for other members: its own port, and the last of its further ports.
    pub(super) fn ports(&self, member: usize) -> [u16; 2] {
        let ports = &self.processes[member].ports;
        [ports[0], *ports.last().expect("the first is its port")]
    }

    /// The member with this port.
    pub(super) fn member_with_port(&self, port: &str) -> Option<usize> {
        self.indices().find(|&member| self.port(member).to_string() == port)
    }

    /// Whether a member runs and is connected to the others.
    pub(super) fn is_present(&self, member: usize) -> bool {
        self.processes[member].member.is_present()
    }

    /// Starts a member with its data and waits until it has read the data. A running member is restarted.
    pub(super) fn start(&mut self, member: usize) {
        let RedisProcess { member, .. } = &mut self.processes[member];
        member.start();
        member.node.wait_until_serving();
    }

    pub(super) fn kill(&mut self, member: usize) {
        self.processes[member].member.kill();
    }

    pub(super) fn pause(&mut self, member: usize) {
        self.processes[member].member.pause();
    }

    pub(super) fn resume(&mut self, member: usize) {
        self.processes[member].member.resume();
    }

    /// Cuts a member off from the others: current connections end, and new ones fail.
    pub(super) fn cut(&mut self, member: usize) {
        self.processes[member].member.cut = true;
        self.update_links();
    }

    /// Like [`cut`](Self::cut), but only cuts the two members off from each other, until one of them is healed.
    pub(super) fn cut_between(&mut self, members: [usize; 2]) {
        self.cut_pairs.push(members);
        self.update_links();
    }

    /// Reconnects a member to all other members that are not cut off themselves.
    pub(super) fn heal(&mut self, member: usize) {
        self.processes[member].member.cut = false;
        self.cut_pairs.retain(|pair| !pair.contains(&member));
        self.update_links();
    }

    /// Sets a member's clock to the machine's time plus `seconds`.
    pub(super) fn set_clock(&self, member: usize, seconds: i64) {
        self.node(member).set_clock(seconds);
    }

    /// Sends commands to a member on one connection and returns the reply to the last one.
    ///
    /// # Errors
    /// The error of the member, or the reason why there is no answer.
    pub(super) fn answer(&self, member: usize, commands: &[&[&str]]) -> RedisAnswer {
        let answer = self.exchange(member, commands, COMMAND_TIMEOUT);
        answer.unwrap_or_else(|error| Err(format!("no answer: {error}")))
    }

    /// Like [`answer`](Self::answer) for one command, but panics if the command fails.
    pub(super) fn command(&self, member: usize, words: &[&str]) -> Vec<String> {
        self.answer(member, &[words]).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The reply of a member to a query. `None`: the member is killed, paused or cut off, or does not answer.
    pub(super) fn query(&self, member: usize, words: &[&str]) -> Option<Vec<String>> {
        let present = self.is_present(member);
        present.then(|| self.exchange(member, &[words], QUERY_TIMEOUT).ok()?.ok()).flatten()
    }

    /// Whether a member reports that it is a master. `false` for a member that is not present.
    pub(super) fn is_master(&self, member: usize) -> bool {
        self.query(member, &["ROLE"]).is_some_and(|role| role[0] == "master")
    }

    /// The port of the master that a member is connected to as its replica.
    pub(super) fn master_port(&self, member: usize) -> Option<String> {
        let role = self.query(member, &["ROLE"])?;
        let [kind, _, port, state, ..] = role.as_slice() else { return None };
        (kind == "slave" && state == "connected").then(|| port.clone())
    }

    fn node(&self, member: usize) -> &RedisNode {
        &self.processes[member].member.node
    }

    /// Sends commands on one new connection and returns the last reply.
    fn exchange(&self, member: usize, commands: &[&[&str]], timeout: Duration) -> io::Result<RedisAnswer> {
        let password = self.processes[member].password.as_deref();
        let mut connection = RedisConnection::connect(self.port(member), password, timeout)?;
        let mut answer = Ok(Vec::new());
        for words in commands {
            answer = connection.call(words)?;
        }
        Ok(answer)
    }

    fn add_links(&mut self, from: usize, to: usize) {
        let ports = &self.processes[to].ports;
        let new_link = |&port: &u16| Link { from, to, port, proxy: Proxy::start(port) };
        self.links.extend(ports.iter().map(new_link));
    }

    /// Pairs of ports: a port to which a member connects to reach another member, and the port of the proxy for this
    /// connection.
    fn routes(&self, member: usize) -> impl Iterator<Item = (u16, u16)> {
        let links = self.links.iter().filter(move |link| link.from == member);
        links.map(|link| (link.port, link.proxy.port()))
    }

    /// Redirects the connections of a member to the others, so that they go through the proxies.
    fn redirect_to_proxies(&self, member: usize) {
        self.set_redirect(member, self.routes(member));
    }

    fn set_redirect(&self, member: usize, routes: impl Iterator<Item = (u16, u16)>) {
        self.node(member).redirect().expect("each member has one").set(routes);
    }

    /// Blocks and unblocks the links according to the state of the members.
    fn update_links(&self) {
        for Link { from, to, proxy, .. } in &self.links {
            let ends = [*from, *to];
            let is_cut_pair = self.cut_pairs.iter().any(|pair| ends.iter().all(|end| pair.contains(end)));
            if is_cut_pair || ends.iter().any(|&end| self.processes[end].member.cut) {
                proxy.block();
            } else {
                proxy.unblock();
            }
        }
    }
}

/// Polls until `poll` returns a value, and returns that value.
///
/// # Panics
/// If `poll` returns no value within [`STABLE_LIMIT`].
pub(super) fn poll_until<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    poll_for(STABLE_LIMIT, poll).unwrap_or_else(|| panic!("{what}: not after {STABLE_LIMIT:?}"))
}
