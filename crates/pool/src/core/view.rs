//! View of the datasets for the rooms below them: names, open heads, and keys to read blocks with.
//! The datasets implement it.

use std::sync::Arc;

use steadfast_crypto::BlockKeys;
use steadfast_dataset::Dataset;
use steadfast_format::{BlockPointer, DatasetId, Txg};

use crate::core::error::{Error, Result};
use crate::core::state::Core;

/// Keys and family to read a dataset's blocks with.
pub(crate) struct Reader {
    pub keys: Option<Arc<BlockKeys>>,
    /// A key is needed, whether it is loaded or not.
    pub is_encrypted: bool,
    /// The dataset under whose number they are sealed.
    pub family: DatasetId,
}

/// A dataset or a snapshot, as the last commit stored it.
pub(crate) struct Roots {
    pub dataset: DatasetId,
    /// Txg of the snapshot; `None` of the dataset itself.
    pub moment: Option<Txg>,
    /// The snapshot before it, or the origin, which has the older blocks.
    pub before: Option<(DatasetId, Txg)>,
    /// Older blocks belong to the snapshot before, or to the origin.
    pub after: Txg,
    /// It is the dataset itself and no snapshot of it.
    pub is_head: bool,
    /// Roots of its trees.
    pub roots: Vec<BlockPointer>,
}

/// The datasets of a pool, seen from below.
pub(crate) trait DatasetView: Send + Sync {
    /// Full name of a dataset, or its number if it is gone.
    fn name_of(&self, id: DatasetId) -> String;

    /// Open heads, parents before children.
    fn heads(&self) -> Vec<Arc<Dataset>>;

    /// The head of a dataset if it is open.
    fn head_of(&self, id: DatasetId) -> Option<Arc<Dataset>>;

    /// Opens the head of a dataset.
    fn open_head(&self, id: DatasetId) -> Result<Arc<Dataset>>;

    /// Keys and family of a dataset; `None` if it is gone or being destroyed.
    fn reader(&self, id: DatasetId) -> Option<Reader>;

    /// All datasets and snapshots, parents before children.
    fn roots(&self) -> Vec<Roots>;

    /// Full name of a dataset, or of a snapshot of it; its number if it is gone.
    fn name_of_moment(&self, id: DatasetId, moment: Option<Txg>) -> String;

    /// Lets a dataset or a snapshot of it be read as files. Not one that is gone, whose key is not
    /// loaded, or that is stored as it was received.
    fn read_moment(&self, id: DatasetId, moment: Option<Txg>, read: &mut dyn FnMut(&Arc<Dataset>));
}

impl Core {
    /// The datasets, as long as the pool stands.
    fn view(&self) -> Option<Arc<dyn DatasetView>> {
        self.view.get()?.upgrade()
    }

    /// Open heads, parents before children.
    pub fn heads(&self) -> Vec<Arc<Dataset>> {
        self.view().map(|view| view.heads()).unwrap_or_default()
    }

    /// The head of a dataset if it is open.
    pub fn head_of(&self, id: DatasetId) -> Option<Arc<Dataset>> {
        self.view()?.head_of(id)
    }

    /// Opens the head of a dataset.
    pub fn open_head(&self, id: DatasetId) -> Result<Arc<Dataset>> {
        let gone = || Error::NoSuchDataset { name: format!("<{id}>") };
        self.view().ok_or_else(gone)?.open_head(id)
    }

    /// Full name of a dataset, or its number if it is gone.
    pub fn dataset_name(&self, id: DatasetId) -> String {
        self.view().map_or_else(|| format!("<{id}>"), |view| view.name_of(id))
    }

    /// Keys and family of a dataset; `None` if it is gone or being destroyed.
    pub fn reader_of(&self, id: DatasetId) -> Option<Reader> {
        self.view()?.reader(id)
    }

    /// Full name of a dataset, or of a snapshot of it; its number if it is gone.
    pub fn name_of_moment(&self, id: DatasetId, moment: Option<Txg>) -> String {
        self.view().map_or_else(|| format!("<{id}>"), |view| view.name_of_moment(id, moment))
    }

    /// Lets a dataset or a snapshot of it be read as files, if it can be.
    pub fn read_moment(&self, id: DatasetId, moment: Option<Txg>, read: &mut dyn FnMut(&Arc<Dataset>)) {
        if let Some(view) = self.view() {
            view.read_moment(id, moment, read);
        }
    }

    /// All datasets and snapshots, parents before children.
    pub fn dataset_roots(&self) -> Vec<Roots> {
        self.view().map(|view| view.roots()).unwrap_or_default()
    }
}
