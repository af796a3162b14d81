//! Scrub of stores of objects: nodes and content side by side.
//!
//! A read of a store waits a round trip, so [`WORKERS`] of them are under way at all times. Nodes
//! of the meta tree, nodes of file systems and content are drawn from one list.
//!
//! ## Order
//! Content waits until [`CONTENT_LEAST`] of it is known or no node is left: blocks of one leaf have
//! gaps between them where others were written at the same time, and lie side by side once the
//! other leaves are known. And a node that is asked for behind 32 MiB of content waits for all of
//! these on a narrow line, which costs more than to ask for nodes first. Beyond that, nodes and
//! content are read side by side, nodes by [`NODE_WORKERS`] at most.
//!
//! ## Invariants
//! [scrub_flow.1] No node is drawn while [`CONTENT_MAX`] or [`BLOCKS_MAX`] wait. So what waits is
//!      bounded by these, what is below [`NODES_MAX`] nodes for each worker, and the siblings along
//!      as many paths.
//!      `Flow::draw`
//! [scrub_flow.2] A flow draws nothing more after [`FLOW_NS`]; after [`STEP_NS`] if a commit, a
//!      command or a writer waits, or if somebody has read for whom the bandwidth is bounded.
//!      Transfers under way are waited for: [`FLYING_MAX`] of content.
//!      `Devices::is_over`
//! [scrub_flow.3] A worker that panics lets the others end.
//!      `Working::drop`

use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};
use steadfast_env::Job;
use steadfast_format::BlockPointer;
use steadfast_segment::READ_GAP_MAX;

use crate::devices::scan::{Content, MetaNode, STEP_NS, Tally, Tree, Visit, Walk};
use crate::devices::scrub_walk::{Reach, Seen};
use crate::devices::state::Devices;

/// Transfers under way at once.
const WORKERS: usize = 32;
/// Workers that read nodes beside content.
const NODE_WORKERS: usize = 16;
/// Bytes of content that are known before any of it is read, and bytes and blocks beyond which no
/// more nodes are drawn.
const CONTENT_LEAST: u64 = 64 << 20;
const CONTENT_MAX: u64 = 256 << 20;
const BLOCKS_MAX: usize = 16_384;
/// How long a flow lasts that disturbs nobody: its end costs a round trip.
const FLOW_NS: u64 = 4_000_000_000;

/// One transfer of content, as a reader of a long file has them; and bytes of content that are
/// under way at once.
const RUN: Reach = Reach { bytes: 4 << 20, gap: READ_GAP_MAX };
const FLYING_MAX: u64 = 32 << 20;
/// One transfer of nodes, and how many it brings at most: below each leaf are some 130 blocks. A
/// commit writes nodes one after the other, and bytes of dead ones cost less than a request.
const NODE_RUN: Reach = Reach { bytes: 1 << 20, gap: 64 << 10 };
const NODES_MAX: usize = 32;

/// When a flow ends [scrub_flow.2].
#[derive(Clone, Copy)]
pub(crate) struct FlowEnd {
    /// The look began then.
    pub began_ns: u64,
    /// It ends once others have asked for more blocks than these.
    pub alone: Option<u64>,
}

/// A part of the work, for one worker.
enum Piece {
    Meta(Vec<MetaNode>),
    Nodes(Vec<(Tree, BlockPointer)>),
    Content(Vec<Content>),
}

/// Work that waits, and what was found so far.
struct Flow<'a> {
    meta: &'a mut Vec<MetaNode>,
    walk: &'a mut Walk,
    /// Workers that read a node, and all that read.
    nodes: usize,
    reading: usize,
    /// Bytes of content under way.
    flying: u64,
    whole: Tally,
}

impl Flow<'_> {
    /// The next piece, as far as one may be drawn now.
    fn draw(&mut self, devices: &Devices) -> Option<Piece> {
        let waiting = &mut self.walk.content;
        let is_full = waiting.bytes >= CONTENT_MAX || waiting.len() >= BLOCKS_MAX;
        let is_enough = waiting.bytes >= CONTENT_LEAST || waiting.len() >= BLOCKS_MAX / 4;
        let mut piece = None;
        if !is_full && (!is_enough || self.nodes < NODE_WORKERS) {
            let of_meta = |node: &MetaNode| Some(node.pointer);
            let meta = devices.take_beside(self.meta, of_meta, NODES_MAX, NODE_RUN);
            piece = Some(meta).filter(|meta| !meta.is_empty()).map(Piece::Meta);
            while let Some(Visit::Content(_)) = self.walk.todo.last()
                && let Some(visit) = self.walk.todo.pop()
            {
                devices.wait_for(vec![visit], waiting);
            }
            if piece.is_none() {
                let of_node = |visit: &Visit| match visit {
                    Visit::Node(_, pointer) => Some(*pointer),
                    Visit::Content(_) => None,
                };
                let some = devices.take_beside(&mut self.walk.todo, of_node, NODES_MAX, NODE_RUN);
                let nodes = some.into_iter().filter_map(|visit| match visit {
                    Visit::Node(tree, pointer) => Some((tree, pointer)),
                    Visit::Content(_) => None,
                });
                piece = Some(nodes.collect::<Vec<_>>()).filter(|nodes| !nodes.is_empty()).map(Piece::Nodes);
            }
        }
        let has_room = self.flying + RUN.bytes <= FLYING_MAX;
        if piece.is_none() && waiting.len() > 0 && has_room && (is_enough || self.nodes == 0) {
            let run = devices.next_run(waiting, RUN);
            self.flying += bytes_of(&run);
            piece = Some(Piece::Content(run));
        }
        self.reading += usize::from(piece.is_some());
        self.nodes += usize::from(matches!(piece, Some(Piece::Meta(_) | Piece::Nodes(_))));
        piece
    }
}

fn bytes_of(run: &[Content]) -> u64 {
    run.iter().map(|content| u64::from(content.pointer.psize)).sum()
}

/// A worker that reads.
struct Working<'f, 'a> {
    shared: &'f Shared<'a>,
    is_node: bool,
    /// Bytes of content.
    bytes: u64,
}

impl Drop for Working<'_, '_> {
    fn drop(&mut self) {
        let mut flow = self.shared.flow.lock();
        flow.reading -= 1;
        flow.nodes -= usize::from(self.is_node);
        flow.flying -= self.bytes;
        drop(flow);
        self.shared.changed.notify_all();
    }
}

struct Shared<'a> {
    flow: Mutex<Flow<'a>>,
    changed: Condvar,
}

impl Devices {
    /// Scrubs for a while: nodes of the meta tree, and what a walk has to look at. `None` if there
    /// is nothing left. Sync context only.
    pub(crate) fn flow(&self, meta: &mut Vec<MetaNode>, walk: &mut Walk, end: FlowEnd) -> Option<Tally> {
        if meta.is_empty() && walk.todo.is_empty() && walk.content.len() == 0 {
            return None;
        }
        let flow = Flow { meta, walk, nodes: 0, reading: 0, flying: 0, whole: Tally::default() };
        let shared = Shared { flow: Mutex::new(flow), changed: Condvar::new() };
        let work = |_| -> Job<'_> {
            let shared = &shared;
            Box::new(move || self.work(shared, end))
        };
        self.core.env.tasks.run_waiting((0..WORKERS).map(work).collect());
        Some(shared.flow.into_inner().whole)
    }

    /// [scrub_flow.2]
    fn is_over(&self, FlowEnd { began_ns, alone }: FlowEnd) -> bool {
        let passed = self.core.env.clock.monotonic_ns().saturating_sub(began_ns);
        // Their count may be too small for a moment.
        let others_read = |seen| self.others_asked().wrapping_sub(seen).cast_signed() > 0;
        let is_waited_for = || {
            self.scans.commands.load(Ordering::Acquire) > 0
                || self.core.txgs.budget.fullness() > 0
                || self.core.txgs.commits.is_requested(self.core.txgs.gate.open_txg())
                || alone.is_some_and(others_read)
        };
        passed >= FLOW_NS || passed >= STEP_NS && is_waited_for()
    }

    fn work(&self, shared: &Shared<'_>, end: FlowEnd) {
        let mut flow = shared.flow.lock();
        while !self.is_over(end) {
            let Some(piece) = flow.draw(self) else {
                if flow.reading == 0 {
                    break;
                }
                shared.changed.wait(&mut flow);
                continue;
            };
            drop(flow);
            let bytes = if let Piece::Content(run) = &piece { bytes_of(run) } else { 0 };
            let working = Working { shared, is_node: !matches!(piece, Piece::Content(_)), bytes };
            match piece {
                Piece::Meta(nodes) => {
                    let pointers: Vec<_> = nodes.iter().map(|node| node.pointer).collect();
                    for (node, looked) in nodes.iter().zip(self.look_at_all(&pointers, NODE_RUN)) {
                        let (tally, below) = self.read_meta(node, looked);
                        let mut flow = shared.flow.lock();
                        flow.whole.add(tally);
                        flow.meta.extend(below);
                    }
                }
                Piece::Nodes(nodes) => {
                    let pointers: Vec<_> = nodes.iter().map(|(_, pointer)| *pointer).collect();
                    for ((tree, pointer), looked) in nodes.iter().zip(self.look_at_all(&pointers, NODE_RUN)) {
                        let Seen { tally, is_locked, below } = self.visit_node(*tree, pointer, looked);
                        let is_node = |visit: &Visit| matches!(visit, Visit::Node(..));
                        let (nodes, content): (Vec<_>, Vec<_>) = below.into_iter().partition(is_node);
                        let mut flow = shared.flow.lock();
                        flow.whole.add(tally);
                        if is_locked {
                            flow.walk.locked.insert(tree.dataset);
                        }
                        flow.walk.todo.extend(nodes.into_iter().rev());
                        self.wait_for(content, &mut flow.walk.content);
                    }
                }
                Piece::Content(run) => {
                    let tally = self.visit_run(&run, RUN);
                    shared.flow.lock().whole.add(tally);
                    if let Some(told) = self.scans.progress.lock().as_mut() {
                        told.row.read += tally.read;
                    }
                }
            }
            drop(working);
            flow = shared.flow.lock();
        }
        drop(flow);
        shared.changed.notify_all();
    }
}
