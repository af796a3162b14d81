//! Answers with fixed figures: the command line's output is compared with them to the letter. The engine itself is tested
//! in the room `control`, and both together in `tests/`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use steadfast_control::api::*;
use steadfast_control::inject::{InForce, InjectCommand, Injections, PoolInject};
use steadfast_control::{Caller, Code, Key, Refusal, Service};
use steadfast_property::{DATASET, Local, POOL, Scope, lookup, resolve};

#[derive(Default)]
struct FixedFs {
    local: Local,
    key: Option<Key>,
    loaded: bool,
    mounted: bool,
    snapshots: Vec<String>,
}

#[derive(Default)]
struct FixedPool {
    guid: u64,
    devices: Vec<String>,
    properties: Local,
    filesystems: BTreeMap<String, FixedFs>,
    history: Vec<HistoryRecord>,
    errors: Vec<DataError>,
}

/// A daemon's pools, as far as the command line can tell.
#[derive(Default)]
pub struct FixedAnswers {
    pools: Mutex<BTreeMap<String, FixedPool>>,
    exported: Mutex<BTreeMap<String, FixedPool>>,
    /// How often counters were looked at.
    looks: std::sync::atomic::AtomicU64,
    injected: Mutex<Vec<InForce>>,
}

fn absent(name: &str) -> Refusal {
    Refusal::new(Code::FsAbsent, "dataset does not exist").with("fs", name)
}

fn no_pool(name: &str) -> Refusal {
    Refusal::new(Code::PoolAbsent, format!("no such pool '{name}'")).with("pool", name)
}

fn touched(name: &str) -> Result<Outcome, Refusal> {
    Ok(Outcome { touched: vec![name.to_owned()], warnings: Vec::new() })
}

fn pool_of(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

impl FixedAnswers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, FixedPool>> {
        self.pools.lock().unwrap()
    }

    fn member(&self, pool: &str, devices: &[std::path::PathBuf]) -> Result<Outcome, Refusal> {
        let pools = self.lock();
        let known = &pools.get(pool).ok_or_else(|| no_pool(pool))?.devices;
        match devices.iter().find(|device| !known.contains(&device.display().to_string())) {
            Some(_) => Err(Refusal::new(Code::VdevMissing, "no device of the pool")),
            None => touched(pool),
        }
    }

    /// Damages a file, as a flipped bit would.
    pub fn damage(&self, pool: &str, error: DataError) {
        self.lock().get_mut(pool).unwrap().errors.push(error);
    }

    fn with_fs<T>(
        &self,
        name: &str,
        act: impl FnOnce(&mut FixedFs, &mut Vec<HistoryRecord>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut pools = self.lock();
        let pool = pools.get_mut(pool_of(name)).ok_or_else(|| absent(name))?;
        let fs = pool.filesystems.get_mut(name).ok_or_else(|| absent(name))?;
        act(fs, &mut pool.history)
    }
}

fn record(caller: &Caller) -> HistoryRecord {
    let (text, uid) = (caller.command.clone(), caller.uid);
    HistoryRecord { time: 1_795_238_707, txg: None, internal: false, text, uid, host: "fake".into() }
}

impl FixedPool {
    fn chain<'a>(&'a self, name: &'a str) -> Vec<(&'a str, &'a Local)> {
        let mut ends: Vec<usize> = name.match_indices('/').map(|(at, _)| at).collect();
        ends.push(name.len());
        ends.into_iter()
            .filter_map(|end| self.filesystems.get_key_value(&name[..end]))
            .map(|(n, f)| (n.as_str(), &f.local))
            .collect()
    }

    fn root_of(&self, name: &str) -> Option<String> {
        let chain = self.chain(name);
        chain.iter().rev().find(|(_, local)| local.contains_key("keyformat")).map(|(n, _)| (*n).to_owned())
    }

    fn info(&self, name: &str) -> FsInfo {
        let fs = &self.filesystems[name];
        let chain = self.chain(name);
        let mut properties: BTreeMap<String, Value> = BTreeMap::new();
        let own: Vec<&String> = chain.iter().flat_map(|(_, l)| l.keys()).collect();
        for property in DATASET.iter().map(|p| p.name).chain(own.iter().map(|s| s.as_str())) {
            if let Some(found) = resolve(&chain, property, "/") {
                properties.insert(property.to_owned(), found.into());
            }
        }
        let root = self.root_of(name);
        let loaded = root.as_ref().is_none_or(|r| self.filesystems[r].loaded);
        let status = match (&root, loaded) {
            (None, _) => "none",
            (Some(_), true) => "available",
            (Some(_), false) => "unavailable",
        };
        let measured: [(&str, String); 9] = [
            ("type", "filesystem".into()),
            ("creation", "1795238707".into()),
            ("used", "27158118".into()),
            ("available", "161061273600".into()),
            ("referenced", "98304".into()),
            ("compressratio", "2.49".into()),
            ("mounted", if fs.mounted { "yes" } else { "no" }.into()),
            ("keystatus", status.into()),
            ("encryptionroot", root.unwrap_or_else(|| "-".into())),
        ];
        for (name, value) in measured {
            properties.insert(name.into(), Value::measured(value));
        }
        let mounted_at = fs.mounted.then(|| properties["mountpoint"].value.clone().into());
        FsInfo { name: name.to_owned(), createtxg: 4, mounted_at, properties, received: Properties::new() }
    }

    fn vdevs(&self) -> Vec<VdevReport> {
        let report = |name: &String| VdevReport {
            size: 256 << 20,
            allocated: 27_158_118,
            checksum_errors: self.errors.len() as u64,
            ..VdevReport::new(name.clone(), 7, VdevClass::Main, Health::Online)
        };
        self.devices.iter().map(report).collect()
    }
}

macro_rules! answer {
    ($self:ident, $caller:ident, $request:ident; $($verb:ident $method:ident)*) => {
        match $request {
            $(Request::$verb(request) => $self.$method($caller, request).map(|a| serde_json::to_value(a).unwrap()),)*
            Request::DaemonPing(_) | Request::DaemonInfo(_) | Request::DaemonStop(_) => {
                unreachable!("the server answers this")
            }
        }
    };
}

impl Service for FixedAnswers {
    fn answer(&self, caller: &Caller, request: Request) -> Result<serde_json::Value, Refusal> {
        answer! { self, caller, request;
            PoolCreate pool_create
            PoolDestroy pool_destroy
            PoolImportScan pool_import_scan
            PoolImport pool_import
            PoolExport pool_export
            PoolList pool_list
            PoolStatus pool_status
            PoolSet pool_set
            PoolHistory pool_history
            PoolSync pool_sync
            PoolAdd pool_add
            PoolRemove pool_remove
            PoolOnline pool_online
            PoolOffline pool_offline
            PoolClear pool_clear
            PoolTrim pool_trim
            PoolInitialize pool_initialize
            PoolScrub pool_scrub
            PoolReplace pool_replace
            PoolInject pool_inject
            PoolAttach pool_attach
            PoolDetach pool_detach
            PoolRebalance pool_rebalance
            PoolResilver pool_resilver
            PoolReguid pool_reguid
            PoolSplit pool_split
            PoolPrefetch pool_prefetch
            PoolDdtPrune pool_ddt_prune
            PoolActivities pool_activities
            LabelClear label_clear
            PoolUpgrade pool_upgrade
            PoolIostat pool_iostat
            PoolEvents pool_events
            PoolEventsClear pool_events_clear
            FsRename fs_rename
            FsChangeKey fs_change_key
            FsCreate fs_create
            FsDestroy fs_destroy
            FsList fs_list
            FsUserspace fs_userspace
            FsSet fs_set
            FsSnapshot fs_snapshot
            FsSnapshotDestroy fs_snapshot_destroy
            FsListAll fs_list_all
            FsRollback fs_rollback
            FsHold fs_hold
            FsHolds fs_holds
            FsSnapshotRename fs_snapshot_rename
            FsClone fs_clone
            FsPromote fs_promote
            FsSend fs_send
            FsReceive fs_receive
            FsReceiveAbort fs_receive_abort
            FsBookmark fs_bookmark
            FsDiff fs_diff
            FsBookmarkDestroy fs_bookmark_destroy
            FsInherit fs_inherit
            FsMount fs_mount
            FsUnmount fs_unmount
            FsLoadKey fs_load_key
            FsUnloadKey fs_unload_key
            DaemonMemory daemon_memory
        }
    }

    fn shutdown(&self, _: bool) -> Result<(), Refusal> {
        Ok(())
    }
}

impl FixedAnswers {
    fn pool_create(&self, caller: &Caller, request: PoolCreate) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        if pools.contains_key(&request.name) {
            return Err(
                Refusal::new(Code::PoolExists, "a pool of this name is imported").with("pool", &request.name)
            );
        }
        let devices: Vec<String> =
            request.vdevs.iter().flat_map(|v| &v.devices).map(|d| d.display().to_string()).collect();
        for device in &devices {
            if !std::path::Path::new(device).exists() {
                let what = format!("the device {device} does not exist");
                return Err(Refusal::new(Code::VdevMissing, what).with("device", device));
            }
        }
        if request.dry_run {
            return touched(&request.name);
        }
        let mut local = request.fs_properties;
        if let Some(mountpoint) = request.mountpoint {
            local.insert("mountpoint".into(), mountpoint);
        }
        let (loaded, mounted) = (request.key.is_some(), local.get("mountpoint").is_none_or(|m| m != "none"));
        let root = FixedFs { local, key: request.key, loaded, mounted, snapshots: Vec::new() };
        let pool = FixedPool {
            guid: 15_220_353_080_205_405_147,
            devices,
            properties: request.properties,
            filesystems: BTreeMap::from([(request.name.clone(), root)]),
            history: vec![record(caller)],
            errors: Vec::new(),
        };
        pools.insert(request.name.clone(), pool);
        touched(&request.name)
    }

    fn pool_destroy(&self, _: &Caller, request: PoolDestroy) -> Result<Outcome, Refusal> {
        match self.lock().remove(&request.name) {
            Some(_) => touched(&request.name),
            None => Err(Refusal::new(Code::PoolAbsent, "no such pool")),
        }
    }

    fn pool_import_scan(&self, _: &Caller, _: PoolImportScan) -> Result<Vec<PoolCandidate>, Refusal> {
        let exported = self.exported.lock().unwrap();
        let candidate = |(name, pool): (&String, &FixedPool)| PoolCandidate {
            name: name.clone(),
            guid: pool.guid,
            state: Health::Online,
            importable: true,
            sealed: None,
            vdevs: pool.vdevs(),
            message: None,
        };
        Ok(exported.iter().map(candidate).collect())
    }

    fn pool_import(&self, _: &Caller, request: PoolImport) -> Result<Outcome, Refusal> {
        let mut exported = self.exported.lock().unwrap();
        let found = exported
            .iter()
            .find(|(name, pool)| match &request.pool {
                PoolSelector::Name(wanted) => *name == wanted,
                PoolSelector::Guid(guid) => pool.guid == *guid,
            })
            .map(|(name, _)| name.clone());
        let Some(name) = found else {
            return Err(Refusal::new(Code::PoolNotFound, "no such pool available"));
        };
        let mut pool = exported.remove(&name).unwrap();
        pool.filesystems.values_mut().for_each(|fs| fs.loaded = false);
        self.lock().insert(name.clone(), pool);
        touched(&name)
    }

    fn pool_export(&self, _: &Caller, request: PoolExport) -> Result<Outcome, Refusal> {
        let Some(pool) = self.lock().remove(&request.name) else {
            return Err(Refusal::new(Code::PoolAbsent, "no such pool"));
        };
        self.exported.lock().unwrap().insert(request.name.clone(), pool);
        touched(&request.name)
    }

    fn pool_list(&self, _: &Caller, request: PoolList) -> Result<Vec<PoolInfo>, Refusal> {
        let pools = self.lock();
        if let Some(missing) = request.names.iter().find(|n| !pools.contains_key(*n)) {
            return Err(Refusal::new(Code::PoolAbsent, format!("no such pool '{missing}'")));
        }
        let wanted =
            pools.iter().filter(|(name, _)| request.names.is_empty() || request.names.contains(name));
        let info = |(name, pool): (&String, &FixedPool)| {
            let mut properties = BTreeMap::new();
            for property in POOL {
                let value = pool.properties.get(property.name);
                let source = if value.is_some() { Source::Local } else { Source::Default };
                let value = value.map(String::as_str).or(property.default);
                if let Some(value) = value {
                    properties.insert(property.name.to_owned(), Value { value: value.into(), source });
                }
            }
            let measured = [
                ("size", "268435456"),
                ("allocated", "27158118"),
                ("free", "241277338"),
                ("capacity", "10"),
                ("fragmentation", "0"),
                ("dedupratio", "1.00"),
                ("health", "ONLINE"),
            ];
            for (name, value) in measured {
                properties.insert(name.into(), Value::measured(value));
            }
            properties.insert("guid".into(), Value::measured(pool.guid));
            for (name, value) in pool.properties.iter().filter(|(name, _)| name.starts_with("feature@")) {
                properties.insert(name.clone(), Value { value: value.clone(), source: Source::Local });
            }
            PoolInfo { name: name.clone(), guid: pool.guid, state: Health::Online, txg: 42, properties }
        };
        Ok(wanted.map(info).collect())
    }

    fn pool_status(&self, _: &Caller, request: PoolStatus) -> Result<Vec<PoolReport>, Refusal> {
        let pools = self.lock();
        let wanted =
            pools.iter().filter(|(name, _)| request.names.is_empty() || request.names.contains(name));
        let report = |(name, pool): (&String, &FixedPool)| {
            let damaged = Refusal::new(Code::BlkAuthAll, "blocks failed authentication on all copies")
                .with("pool", name);
            PoolReport {
                name: name.clone(),
                guid: pool.guid,
                state: Health::Online,
                txg: 42,
                messages: if pool.errors.is_empty() { Vec::new() } else { vec![damaged] },
                vdevs: pool.vdevs(),
                errors: pool.errors.clone(),
                error_count: pool.errors.len() as u64,
                scan: None,
                moving: None,
                sharing: Default::default(),
                log: Default::default(),
            }
        };
        Ok(wanted.map(report).collect())
    }

    fn pool_set(&self, _: &Caller, request: PoolSet) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        let pool =
            pools.get_mut(&request.name).ok_or_else(|| Refusal::new(Code::PoolAbsent, "no such pool"))?;
        pool.properties.extend(request.properties);
        touched(&request.name)
    }

    fn daemon_memory(&self, _: &Caller, _: DaemonMemory) -> Result<MemoryReport, Refusal> {
        Ok(MemoryReport::default())
    }

    fn pool_history(&self, _: &Caller, request: PoolHistory) -> Result<Vec<PoolPast>, Refusal> {
        let pools = self.lock();
        let wanted =
            pools.iter().filter(|(name, _)| request.names.is_empty() || request.names.contains(name));
        Ok(wanted
            .map(|(name, pool)| PoolPast { name: name.clone(), records: pool.history.clone() })
            .collect())
    }

    fn pool_sync(&self, _: &Caller, request: PoolSync) -> Result<Outcome, Refusal> {
        Ok(Outcome { touched: request.names, warnings: Vec::new() })
    }

    fn pool_remove(&self, _: &Caller, request: PoolRemove) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        let pool = pools.get_mut(&request.name).ok_or_else(|| no_pool(&request.name))?;
        let named = |device: &String| request.devices.iter().any(|d| d.display().to_string() == *device);
        if pool.devices.first().is_some_and(named) {
            return Err(Refusal::new(Code::VdevNeeded, format!("{} holds data", pool.devices[0])));
        }
        pool.devices.retain(|device| !named(device));
        touched(&request.name)
    }

    fn pool_add(&self, _: &Caller, request: PoolAdd) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        let pool = pools.get_mut(&request.name).ok_or_else(|| no_pool(&request.name))?;
        if !request.dry_run {
            let new = request.vdevs.iter().flat_map(|v| &v.devices).map(|d| d.display().to_string());
            pool.devices.extend(new);
        }
        touched(&request.name)
    }

    fn pool_online(&self, _: &Caller, request: PoolOnline) -> Result<Outcome, Refusal> {
        self.member(&request.name, &request.devices)
    }

    fn pool_offline(&self, _: &Caller, request: PoolOffline) -> Result<Outcome, Refusal> {
        self.member(&request.name, &request.devices)?;
        // As many as redundancy takes to be of use.
        if self.lock().get(&request.name).is_some_and(|pool| pool.devices.len() > 2) {
            return touched(&request.name);
        }
        Err(Refusal::new(Code::VdevNeeded, "the pool has no redundancy"))
    }

    fn pool_clear(&self, _: &Caller, request: PoolClear) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        pools.get_mut(&request.name).ok_or_else(|| no_pool(&request.name))?.errors.clear();
        touched(&request.name)
    }

    fn label_clear(&self, _: &Caller, request: LabelClear) -> Result<Outcome, Refusal> {
        if !request.device.exists() {
            return Err(Refusal::new(Code::VdevMissing, "the device does not exist"));
        }
        touched("label")
    }

    fn pool_trim(&self, _: &Caller, request: PoolTrim) -> Result<Outcome, Refusal> {
        self.member(&request.name, &request.devices)?;
        touched(&request.name)
    }

    fn pool_prefetch(&self, _: &Caller, request: PoolPrefetch) -> Result<Outcome, Refusal> {
        request.names.iter().try_for_each(|name| self.member(name, &[]).map(drop))?;
        Ok(Outcome { touched: request.names, warnings: Vec::new() })
    }

    fn pool_ddt_prune(&self, _: &Caller, request: PoolDdtPrune) -> Result<Pruned, Refusal> {
        self.member(&request.name, &[])?;
        Ok(Pruned { blocks: 0 })
    }

    fn pool_reguid(&self, _: &Caller, request: PoolReguid) -> Result<Outcome, Refusal> {
        self.member(&request.name, &[])?;
        touched(&request.name)
    }

    fn pool_split(&self, _: &Caller, request: PoolSplit) -> Result<Outcome, Refusal> {
        self.member(&request.name, &request.devices)?;
        touched(&request.name)
    }

    fn pool_initialize(&self, _: &Caller, request: PoolInitialize) -> Result<Outcome, Refusal> {
        self.member(&request.name, &request.devices)?;
        touched(&request.name)
    }

    fn pool_scrub(&self, _: &Caller, request: PoolScrub) -> Result<Outcome, Refusal> {
        self.member(&request.name, &[])?;
        touched(&request.name)
    }

    fn pool_inject(&self, _: &Caller, request: PoolInject) -> Result<Injections, Refusal> {
        self.member(&request.name, request.device.as_slice())?;
        let mut in_force = self.injected.lock().unwrap();
        match request.command {
            InjectCommand::Clear => in_force.clear(),
            InjectCommand::Arm(fault) => {
                let device = request.device.map_or_else(String::new, |device| device.display().to_string());
                in_force.push(InForce { device, fault, seen: 0, struck: 0 });
            }
            _ => {}
        }
        Ok(Injections { in_force: in_force.clone(), done: 0 })
    }

    fn pool_attach(&self, _: &Caller, request: PoolAttach) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        let pool = pools.get_mut(&request.name).ok_or_else(|| no_pool(&request.name))?;
        pool.devices.push(request.new.display().to_string());
        touched(&request.name)
    }

    fn pool_detach(&self, _: &Caller, request: PoolDetach) -> Result<Outcome, Refusal> {
        self.member(&request.name, &[request.device])?;
        touched(&request.name)
    }

    fn pool_rebalance(&self, _: &Caller, request: PoolRebalance) -> Result<Outcome, Refusal> {
        self.member(&request.name, &[])?;
        touched(&request.name)
    }

    fn pool_resilver(&self, _: &Caller, request: PoolResilver) -> Result<Outcome, Refusal> {
        self.member(&request.name, &[])?;
        touched(&request.name)
    }

    fn pool_replace(&self, _: &Caller, request: PoolReplace) -> Result<Outcome, Refusal> {
        self.member(&request.name, &[request.old])?;
        touched(&request.name)
    }

    fn pool_activities(&self, _: &Caller, request: PoolActivities) -> Result<Activities, Refusal> {
        self.lock().get(&request.name).map(|_| Activities::default()).ok_or_else(|| no_pool(&request.name))
    }

    fn pool_upgrade(&self, _: &Caller, request: PoolUpgrade) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        for (name, pool) in self.lock().iter_mut() {
            let wanted = request.names.is_empty() || request.names.contains(name);
            if wanted && pool.properties.insert("feature@moved_datasets".into(), "active".into()).is_none() {
                outcome.touched.push(format!("{name} moved_datasets"));
            }
        }
        Ok(outcome)
    }

    fn pool_iostat(&self, _: &Caller, request: PoolIostat) -> Result<Vec<PoolIo>, Refusal> {
        let pools = self.lock();
        if let Some(missing) = request.names.iter().find(|n| !pools.contains_key(*n)) {
            return Err(no_pool(missing));
        }
        // Each look finds one second more, with 100 reads of 4 KiB and 10 writes of 1 MiB on each device.
        let looks = self.looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        let count = |calls: u64, bytes: u64, nanos: u64| {
            let mut histogram = vec![0; 40];
            histogram[nanos.max(1).ilog2() as usize] = calls * looks;
            let (calls, bytes, nanos) = (calls * looks, calls * bytes * looks, calls * nanos * looks);
            CallCount { calls, bytes, nanos, histogram }
        };
        let device = |(at, name): (usize, &String)| DeviceIo {
            group: String::new(),
            class: VdevClass::Main,
            name: name.clone(),
            guid: 7 + at as u64,
            allocated: 27_158_118,
            free: (256 << 20) - 27_158_118,
            read: count(100, 4096, 17_000),
            write: count(10, 1 << 20, 2_500_000),
            flush: count(3, 0, 9_000_000),
            trim: count(0, 0, 0),
        };
        let wanted = pools.iter().filter(|(n, _)| request.names.is_empty() || request.names.contains(n));
        let io = |(name, pool): (&String, &FixedPool)| PoolIo {
            name: name.clone(),
            guid: pool.guid,
            age_ns: looks * 1_000_000_000,
            allocated: 27_158_118 * pool.devices.len() as u64,
            free: ((256 << 20) - 27_158_118) * pool.devices.len() as u64,
            groups: Vec::new(),
            devices: pool.devices.iter().enumerate().map(device).collect(),
        };
        Ok(wanted.map(io).collect())
    }

    fn pool_events(&self, _: &Caller, request: PoolEvents) -> Result<Vec<PoolEvent>, Refusal> {
        let mut events = Vec::new();
        for (name, pool) in self.lock().iter() {
            events.push(("sysevent.fs.steadfast.pool_create", name.clone(), BTreeMap::new()));
            for error in &pool.errors {
                let path = error.path.clone().unwrap_or_default();
                let fields = BTreeMap::from([("path".to_owned(), path)]);
                events.push(("ereport.fs.steadfast.data", name.clone(), fields));
            }
        }
        let numbered = events.into_iter().zip(1..).map(|((class, pool, fields), eid)| PoolEvent {
            eid,
            time_ns: 1_795_238_707_000_000_042,
            class: class.into(),
            pool: Some(pool),
            fields,
        });
        let wanted = |event: &PoolEvent| {
            event.eid > request.after && (request.name.is_none() || request.name == event.pool)
        };
        Ok(numbered.filter(wanted).collect())
    }

    fn pool_events_clear(&self, _: &Caller, _: PoolEventsClear) -> Result<Outcome, Refusal> {
        Ok(Outcome { touched: vec!["1".into(), "2".into()], warnings: Vec::new() })
    }

    fn fs_rename(&self, _: &Caller, request: FsRename) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        let pool = pools.get_mut(pool_of(&request.name)).ok_or_else(|| absent(&request.name))?;
        let fs = pool.filesystems.remove(&request.name).ok_or_else(|| absent(&request.name))?;
        pool.filesystems.insert(request.to.clone(), fs);
        touched(&request.to)
    }

    fn fs_change_key(&self, _: &Caller, request: FsChangeKey) -> Result<Outcome, Refusal> {
        self.with_fs(&request.name, |fs, _| {
            if let Some(location) = &request.location {
                fs.local.insert("keylocation".into(), location.clone());
            }
            if let Some(key) = &request.key {
                fs.local.insert("keyformat".into(), key.format.as_str().into());
            }
            fs.key = request.key.clone();
            touched(&request.name)
        })
    }

    fn fs_create(&self, caller: &Caller, request: FsCreate) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        let pool = pools.get_mut(pool_of(&request.name)).ok_or_else(|| absent(&request.name))?;
        if pool.filesystems.contains_key(&request.name) {
            return Err(Refusal::new(Code::FsExists, "dataset already exists"));
        }
        let parent = request.name.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !pool.filesystems.contains_key(parent) {
            return Err(Refusal::new(Code::FsParent, "parent does not exist"));
        }
        let (loaded, mounted) = (request.key.is_some(), !request.no_mount);
        let mut local = request.properties;
        if request.key.is_some() {
            local.entry("keylocation".into()).or_insert("prompt".into());
        }
        pool.filesystems.insert(
            request.name.clone(),
            FixedFs { local, key: request.key, loaded, mounted, snapshots: Vec::new() },
        );
        pool.history.push(record(caller));
        touched(&request.name)
    }

    fn fs_destroy(&self, _: &Caller, request: FsDestroy) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        let pool = pools.get_mut(pool_of(&request.name)).ok_or_else(|| absent(&request.name))?;
        let below = format!("{}/", request.name);
        let gone: Vec<String> = pool
            .filesystems
            .keys()
            .rev()
            .filter(|n| **n == request.name || n.starts_with(&below))
            .cloned()
            .collect();
        if gone.is_empty() {
            return Err(absent(&request.name));
        }
        if gone.len() > 1 && !request.recursive {
            return Err(Refusal::new(Code::FsChildren, "filesystem has children"));
        }
        if !request.dry_run {
            gone.iter().for_each(|name| drop(pool.filesystems.remove(name)));
        }
        Ok(Outcome { touched: gone, warnings: Vec::new() })
    }

    fn fs_list(&self, _: &Caller, request: FsList) -> Result<Vec<FsInfo>, Refusal> {
        let pools = self.lock();
        let all = || pools.values().flat_map(|p| p.filesystems.keys().map(move |n| (p, n)));
        let starts =
            if request.names.is_empty() { pools.keys().cloned().collect() } else { request.names.clone() };
        let mut found = Vec::new();
        for start in starts {
            if !all().any(|(_, n)| *n == start) {
                return Err(Refusal::new(Code::FsAbsent, format!("'{start}' does not exist")));
            }
            let below = format!("{start}/");
            let deep = |n: &str| n.strip_prefix(&below).map(|tail| tail.matches('/').count() as u32 + 1);
            let wanted = all().filter(|(_, n)| {
                **n == start || deep(n).is_some_and(|d| request.depth.is_none_or(|max| d <= max))
            });
            found.extend(wanted.map(|(pool, name)| pool.info(name)));
        }
        Ok(found)
    }

    fn fs_userspace(&self, _: &Caller, request: FsUserspace) -> Result<Vec<OwnerEntry>, Refusal> {
        self.with_fs(&request.name, |_, _| {
            Ok(vec![OwnerEntry { group: false, id: 0, used: 4096, quota: 0, objects: 1, object_quota: 0 }])
        })
    }

    fn fs_set(&self, caller: &Caller, request: FsSet) -> Result<Outcome, Refusal> {
        self.with_fs(&request.name, |fs, history| {
            fs.local.extend(request.properties.clone());
            history.push(record(caller));
            touched(&request.name)
        })
    }

    fn fs_inherit(&self, _: &Caller, request: FsInherit) -> Result<Outcome, Refusal> {
        assert!(request.property.contains(':') || lookup(Scope::Dataset, &request.property).is_some());
        self.with_fs(&request.name, |fs, _| {
            fs.local.remove(&request.property);
            touched(&request.name)
        })
    }

    fn fs_mount(&self, _: &Caller, request: FsMount) -> Result<Outcome, Refusal> {
        self.with_fs(&request.name, |fs, _| {
            if fs.mounted {
                return Err(Refusal::new(Code::FsMounted, "it is mounted already"));
            }
            fs.mounted = true;
            touched(&request.name)
        })
    }

    fn fs_unmount(&self, _: &Caller, request: FsUnmount) -> Result<Outcome, Refusal> {
        self.with_fs(&request.name, |fs, _| {
            if !fs.mounted {
                return Err(Refusal::new(Code::FsNotMounted, "it is not mounted"));
            }
            fs.mounted = false;
            touched(&request.name)
        })
    }

    fn fs_load_key(&self, _: &Caller, request: FsLoadKey) -> Result<Outcome, Refusal> {
        self.with_fs(&request.name, |fs, _| match &fs.key {
            None => Err(Refusal::new(Code::KeyNone, "it is not encrypted")),
            Some(key) if *key != request.key => Err(Refusal::new(Code::KeyWrong, "the key is wrong")),
            Some(_) => {
                fs.loaded |= !request.dry_run;
                touched(&request.name)
            }
        })
    }

    fn fs_unload_key(&self, _: &Caller, request: FsUnloadKey) -> Result<Outcome, Refusal> {
        self.with_fs(&request.name, |fs, _| {
            if fs.mounted {
                return Err(Refusal::new(Code::KeyBusy, "it is mounted").with("fs", &request.name));
            }
            fs.loaded = false;
            touched(&request.name)
        })
    }
}

impl FixedAnswers {
    fn fs_clone(&self, _: &Caller, request: FsClone) -> Result<Outcome, Refusal> {
        let mut pools = self.lock();
        let pool = pools.get_mut(pool_of(&request.name)).ok_or_else(|| absent(&request.name))?;
        let mounted = !request.no_mount;
        let fs =
            FixedFs { local: request.properties, key: None, loaded: false, mounted, snapshots: Vec::new() };
        pool.filesystems.insert(request.name.clone(), fs);
        touched(&request.name)
    }

    fn fs_promote(&self, _: &Caller, request: FsPromote) -> Result<Outcome, Refusal> {
        touched(&request.name)
    }
}

impl FixedAnswers {
    fn fs_snapshot(&self, _: &Caller, request: FsSnapshot) -> Result<Outcome, Refusal> {
        for name in &request.names {
            let (fs, snapshot) = name.split_once('@').expect("names are checked before");
            self.with_fs(fs, |fs, _| {
                fs.snapshots.push(snapshot.to_owned());
                touched(name)
            })?;
        }
        Ok(Outcome { touched: request.names, warnings: Vec::new() })
    }

    fn fs_snapshot_destroy(&self, _: &Caller, request: FsSnapshotDestroy) -> Result<Reclaimed, Refusal> {
        self.with_fs(&request.name, |fs, _| {
            fs.snapshots.retain(|name| request.dry_run || *name != request.snapshots);
            touched(&request.name)
        })?;
        let name = format!("{}@{}", request.name, request.snapshots);
        Ok(Reclaimed { touched: vec![name], bytes: 4096 })
    }

    fn fs_rollback(&self, _: &Caller, request: FsRollback) -> Result<Outcome, Refusal> {
        touched(&request.name)
    }

    fn fs_hold(&self, _: &Caller, request: FsHold) -> Result<Outcome, Refusal> {
        Ok(Outcome { touched: request.names, warnings: Vec::new() })
    }

    fn fs_holds(&self, _: &Caller, request: FsHolds) -> Result<Vec<HeldBy>, Refusal> {
        let held = |snapshot: String| HeldBy { snapshot, tag: "keep".into(), time: 1_795_238_707 };
        Ok(request.names.into_iter().map(held).collect())
    }

    fn fs_snapshot_rename(&self, _: &Caller, request: FsSnapshotRename) -> Result<Outcome, Refusal> {
        touched(&request.to)
    }

    fn fs_list_all(&self, caller: &Caller, request: FsListAll) -> Result<Vec<FsInfo>, Refusal> {
        let named: Vec<String> = request.names.iter().filter(|name| !name.contains('@')).cloned().collect();
        let mut found = Vec::new();
        for fs in self.fs_list(caller, FsList { names: named, depth: request.depth })? {
            let mut snapshots = Vec::new();
            self.with_fs(&fs.name, |fs, _| {
                snapshots.clone_from(&fs.snapshots);
                touched("")
            })?;
            let info = |snapshot: String| FsInfo {
                name: format!("{}@{snapshot}", fs.name),
                createtxg: 9,
                mounted_at: None,
                received: Properties::new(),
                properties: [("type".to_owned(), Value::measured("snapshot"))].into(),
            };
            let snapshots: Vec<FsInfo> = snapshots.into_iter().map(info).collect();
            found.extend(Some(fs).filter(|_| request.filesystems));
            found.extend(snapshots.into_iter().filter(|_| request.snapshots));
        }
        Ok(found)
    }
}

/// What the fake sends: nothing that could be received.
pub const SENT: &[u8] = b"a stream, as far as the command line can tell";

impl FixedAnswers {
    fn fs_send(&self, caller: &Caller, request: FsSend) -> Result<Sent, Refusal> {
        let part = SentPart { snapshot: request.snapshot, base: request.base, estimate: 1 << 20 };
        let mut bytes = 0;
        if let Some(descriptor) = &caller.descriptor {
            descriptor.progress(&part.snapshot, 7);
            std::io::Write::write_all(&mut descriptor.clone(), SENT).expect("somebody reads it");
            bytes = SENT.len() as u64;
        }
        let skipped = if request.skip_missing { vec!["tank/new".to_owned()] } else { Vec::new() };
        Ok(Sent { parts: vec![part], bytes, skipped })
    }

    fn fs_receive(&self, caller: &Caller, request: FsReceive) -> Result<Receipt, Refusal> {
        let mut descriptor = caller.descriptor.clone().expect("the verb has one");
        let stream = std::io::read_to_string(&mut descriptor).expect("somebody writes it");
        let snapshot = format!("{}@{}", request.target.split('@').next().unwrap_or_default(), stream.trim());
        let (bytes, nanos) = (stream.len() as u64, 1_000_000_000);
        let part =
            ReceivedPart { snapshot, from: "far/fs@s".into(), increment: false, bytes, nanos, there: false };
        Ok(Receipt { parts: vec![part], warnings: Vec::new() })
    }

    fn fs_diff(&self, _: &Caller, _: FsDiff) -> Result<Vec<FsDiffEntry>, Refusal> {
        let entry = |change: &str, path: &str, to: Option<&str>| FsDiffEntry {
            change: change.into(),
            kind: "F".into(),
            path: path.into(),
            to: to.map(str::to_owned),
            time: "1795238707.5".into(),
        };
        Ok(vec![entry("M", "/tank/a", None), entry("R", "/tank/b", Some("/tank/c"))])
    }

    fn fs_bookmark(&self, _: &Caller, request: FsBookmark) -> Result<Outcome, Refusal> {
        touched(&request.name)
    }

    fn fs_bookmark_destroy(&self, _: &Caller, request: FsBookmarkDestroy) -> Result<Outcome, Refusal> {
        touched(&request.name)
    }

    fn fs_receive_abort(&self, _: &Caller, request: FsReceiveAbort) -> Result<Outcome, Refusal> {
        touched(&request.name)
    }
}
